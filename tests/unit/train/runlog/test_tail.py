"""A file of events is read while another process writes it."""

import json

import pytest

from train.runlog.event_types import is_event
from train.runlog.tail import Tail, read

STEP = {
    **{"event": "step", "time": 9.0, "step": 3, "loss": 2.0, "lr": 1e-4, "grad_norm": None, "tokens": 9, "targets": 8},
    **{"step_s": 1.0, "sync_s": 0, "sync": "ddp", "shares": [1.0]},
    "nodes": {"a": {"rows": 4, "compute_s": 0.5, "wait_s": 0.1, "gpu_gb": 0, "layers": [0, 4]}},
}
START = {"event": "start", "time": 1.0, "run": "r", "step": 0, "total_steps": 9, "nodes": ["a"]}
LOST = {
    "event": "lost",
    "time": 2.0,
    "node": "a",
    "epoch": 1,
    "step": 1,
    "host": "a",
    "nodes": ["b"],
    "reason": "silent",
}


def line(step: int) -> str:
    return json.dumps({"event": "proof", "time": 1.5, "step": step, "adapter": ""}) + "\n"


def steps(tail: Tail) -> list[int]:
    return [event["step"] for event in tail.events()]


def test_a_growing_file_is_read_in_whole_lines_also_when_it_begins_again(tmp_path):
    file = tmp_path / "events.jsonl"
    tail = Tail(file)
    assert tail.events() == []
    file.write_text(line(1) + line(2) + line(3)[:9])
    assert steps(tail) == [1, 2]
    file.write_text(line(1) + line(2) + line(3))
    assert steps(tail) == [3] and tail.events() == []
    file.write_text(line(9))
    tail.events()
    with file.open("a") as more:
        more.write(line(10))
    assert steps(tail)[-1] == 10


def test_of_a_long_file_the_end_is_enough(tmp_path):
    file = tmp_path / "events.jsonl"
    file.write_text("".join(line(number) for number in range(1000)))
    tail = Tail(file, last_bytes=7 * len(line(999)) + 5)
    assert steps(tail) == list(range(993, 1000))
    assert tail.events() == [] and len(read(file)) == 1000


def test_wherever_the_end_begins_only_whole_lines_are_read(tmp_path):
    """The piece of a line may look like one: each node of a step has braces of its own."""
    file = tmp_path / "events.jsonl"
    line = json.dumps(STEP | {"nodes": dict.fromkeys("ab", STEP["nodes"]["a"])}).encode()
    file.write_bytes(3 * (line + b"\n"))
    for last in range(1, 3 * len(line) + 10):
        whole = min(3, last // (len(line) + 1))
        assert Tail(file, last_bytes=last).news() == [(json.loads(line), line)] * whole, last
        assert Tail(file, last_bytes=last).read() == (line + b"\n") * whole, last


def test_a_line_that_is_no_event_is_left_out(tmp_path):
    file = tmp_path / "events.jsonl"
    deep = "[" * 100_000
    file.write_bytes(
        f'{line(1)}{{"st{line(2)}[3]\nfour\n\n{deep}\n'.encode() + b'{"event": "\xff"}\n' + line(5).encode()
    )
    assert steps(Tail(file)) == [1, 5]


ODD = [
    *(STEP | odd for odd in ({"loss": "x"}, {"step": None}, {"step": 2.5}, {"shares": 3}, {"step_s": None})),
    *(
        STEP | odd
        for odd in ({"nodes": {"a": 3}}, {"nodes": []}, {"time": "now"}, {"time": 1e300}, {"event": ["step"]})
    ),
    *(STEP | odd for odd in ({"rollout": 3}, {"rollout": {"reward": "x"}}, {"pairs": {"margin": "x"}})),
    STEP | {"nodes": {"a": STEP["nodes"]["a"] | {"layers": "all"}}},
    STEP | {"tokens": 10**400},
    *(START | odd for odd in ({"nodes": [3]}, {"total_steps": "9"}, {"nodes": {"a": 1}}, {"reasons": [1]})),
    *(LOST | odd for odd in ({"nodes": "b"}, {"nodes": None}, {"how": []}, {"why": {"b": 1}}, {"epoch": "1"})),
    {"event": "gpu", "time": 1.0, "node": "a", "watts": "360"},
    {"time": 1.0, "text": 3},
]


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_an_event_with_a_value_of_another_kind_is_left_out(tmp_path, odd):
    """Of a disk that changed it, or of somebody who edited the log: it would end status and report."""
    whole = [START, STEP, STEP | {"loss": None}, LOST, {"time": 1.0, "text": "what a script printed"}]
    file = tmp_path / "events.jsonl"
    file.write_text("".join(json.dumps(event) + "\n" for event in (START, odd, *whole[1:])))
    assert read(file) == whole


def test_a_report_leaves_out_what_lacks_something_as_well():
    assert is_event(STEP, whole=True) and is_event(LOST, whole=True) and is_event({"event": "a newer one", "time": 1.0})
    for lacking in ({**STEP, "nodes": {"a": {"rows": 4}}}, without("tokens", STEP), without("reason", LOST)):
        assert is_event(lacking) and not is_event(lacking, whole=True)
    assert not is_event(without("time", STEP), whole=True)


def without(name, event):
    return {key: value for key, value in event.items() if key != name}
