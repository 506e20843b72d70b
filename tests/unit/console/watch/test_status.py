"""status, runs, stop and fetch as tables of what the nodes answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.fetch import disagreeing, fetched_lines, made_in, place_of
from console.run_commands import stop_lines
from console.watch.status import gathered, run_lines, status_lines
from tests.unit.console.watch.test_run_in_words import member, shown, start, step, view_of


def look(**more: Any) -> dict[str, Any]:
    view = {"state": "training", "reason": "", "gpus": []}
    facts = {"on": True, "how": "unit", "run": "r", "now": view, "start": start(0, 1.0), "step": step(12, 9.0)}
    facts |= {"events": [], "members": [], "checkpoint": 10, "free_bytes": 5e9, "gpus": []}
    return facts | more


def status(**looks: dict[str, Any]) -> list[str]:
    return status_lines([*looks], looks, {})


def pipes(*groups: tuple[int, tuple[tuple[str, int, int], ...]]) -> dict[str, Any]:
    """A step over pipes: the rows of each, and its processes with the first and the last layer, counted from 1."""
    found = step(12, 9.0)
    found["nodes"] = {
        name: {"rows": rows * (first == 1), "gpu_gb": 0, "layers": [first - 1, last]}
        for rows, group in groups
        for name, first, last in group
    }
    return found


CUT = pipes((5, (("a", 1, 8), ("b", 9, 23), ("c", 24, 24))))


def test_machines_behind_another_show_their_layers_and_not_that_they_have_no_rows() -> None:
    view = view_of(["a", "b", "c"], total=40)
    shown(view, CUT)
    assert "a 5  b layers 9-23  c layer 24" in view.line() and "2.5 rows/s" in view.line()
    looks = {name: look(step=CUT) for name in "abc"}
    assert [line.split("  checkpoint")[0] for line in status(**looks)[1:]] == [
        "  a  training  5 rows, layers 1-8 of 24",
        "  b  training  layers 9-23 of 24 of a's rows",
        "  c  training  layer 24 of 24 of a's rows",
    ]
    gone = look(step=CUT, now={"state": "away", "reason": "b steps aside", "gpus": []})
    assert "  b  away  b steps aside" in status(b=gone)[1]


def test_each_pipe_has_its_own_rows_and_a_machine_of_two_cards_both_its_parts() -> None:
    event = pipes((5, (("a", 1, 8), ("b:0", 9, 16), ("b:1", 17, 24))), (3, (("c:0", 1, 12), ("c:1", 13, 24))))
    event["nodes"]["d"] = {"rows": 9, "gpu_gb": 0}
    looks = {name: look(step=event) for name in "abcd"}
    assert [line.split("  checkpoint")[0] for line in status(**looks)[1:]] == [
        "  a  training  5 rows, layers 1-8 of 24",
        "  b  training  layers 9-24 of 24 of a's rows",
        "  c  training  3 rows, layers 1-24 of 24",
        "  d  training  9 rows",
    ]


def test_status_with_a_node_that_is_off() -> None:
    lost = member("lost", 9.0, "b", step=11, reason="lost b (silent)")
    lines = status_lines(["a", "b"], {"a": look(members=[lost])}, {"b": "nobody answers at 192.168.1.5"})
    assert lines[:3] == [
        "run r  step 12/40  loss 3.0000  4.0 rows/s  256 tok/s  eta 0:00:56",
        "  a  training  4 rows  checkpoint 10",
        "  b  nobody answers at 192.168.1.5; lost at step 11",
    ]
    assert lines[3].endswith("  lost b (silent)") and "lost  lost" not in lines[3]


def test_status_tells_the_time_left_by_more_than_the_newest_step() -> None:
    slow_once = look(step=step(12, 9.0) | {"step_s": 20.0}, took_s=[2.0] * 20 + [20.0])
    (line, *_) = status(a=slow_once)
    assert "step 12/40" in line and "eta 0:01:46" in line, "28 steps of 3.8 s, not of 20"


def piece(number: int, time: float, **done: int) -> dict[str, Any]:
    facts = {"step": number, "piece": number, "node": "a", "step_s": 18.0, "words": "16 answers"}
    return {"event": "piece", "time": time, **facts, "nodes": {name: {"rows": count} for name, count in done.items()}}


def test_a_run_in_pieces_says_how_far_it_is_and_how_far_it_came() -> None:
    """Two machines do one in 18 s each, so one is done every nine."""
    done = [piece(1, 20.0, a=1), piece(2, 29.0, a=1, b=1), piece(3, 38.0, a=2, b=1)]
    seen = {"start": start(0, 1.0), "step": done[-1], "took_s": []}
    assert [line.split("  checkpoint")[0] for line in status(a=look(**seen, events=done), b=look(**seen))] == [
        "run r  piece 3/40  16 answers  eta 0:10:02",
        "  a  training  2 pieces",
        "  b  training  1 piece",
    ]
    end = {"event": "done", "time": 40.0, "step": 3, "loss": None}
    over = status(a=look(on=False, **seen, events=[end, *done]))[0]
    assert over == "no run is running; the last was r: done at piece 3"


def away(reason: str, **more: Any) -> dict[str, Any]:
    return look(now={"state": "away", "reason": reason, "gpus": [], **more})


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        (away("b steps aside: paused until 18:00"), "  b  away  b steps aside: paused until 18:00  checkpoint 10"),
        (look(on=False, paused="until unpaused"), "  b  no run here · paused until unpaused · 5 GB free"),
        (
            away("waiting for a majority (…)", aside={"rule": "in use", "cause": "in use by hl2"}),
            "  b  away  in use by hl2  checkpoint 10",
        ),
        (look(free_bytes=30e6), "  b  training  4 rows  checkpoint 10  only 30 MB free"),
    ],
)
def test_what_a_machine_does_or_why_it_does_nothing(seen: dict[str, Any], line: str) -> None:
    assert status(a=look(), b=seen)[2] == line


def over(kind: str, time: float = 9.5, **more: Any) -> dict[str, Any]:
    return look(on=False, events=[{"event": kind, "time": time, "step": 12, **more}])


STOP = over("stopped", reason="SIGTERM")
BROKEN = over("failed", time=9.6, message="Connection reset by peer")
VERDICT = member("ended", 9.9, reason="b: Connection reset by peer", done=False)
RESUME = "at step 12 · resume it: ./motley launch --resume r"


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        ({"a": STOP}, f"stopped {RESUME}"),
        ({"a": over("done", loss=3.0)}, "done at step 12"),
        ({"a": over("failed", message="disk full\nmore")}, f"failed: disk full {RESUME}"),
        ({"a": STOP, "b": BROKEN}, f"stopped {RESUME}"),
        ({"a": STOP, "b": BROKEN | {"members": [VERDICT]}}, f"failed: Connection reset by peer {RESUME}"),
    ],
    ids=["stopped", "done", "failed", "one node was told last, and saw the others leave", "so the agents say"],
)
def test_the_last_run_is_named_with_how_it_ended_and_how_to_go_on(looks: dict[str, Any], said: str) -> None:
    assert status(**looks)[0] == f"no run is running; the last was r: {said}"


def test_status_when_nobody_answers() -> None:
    assert status_lines(["a"], {}, {"a": "off"}) == ["no node answers:", "  a  off"]


def test_stop_names_what_is_left_and_who_was_not_asked() -> None:
    told = {"was_on": True, "run": "r", "checkpoint": 12, "forced": 0, "left": [], "ports": [], "seconds": 1.2}
    left = told | {"left": [7], "ports": [29400], "forced": 1}
    lines = stop_lines(["a", "b", "c"], {"a": told, "c": left}, {"b": "off"})
    assert lines[0] == "run r stopped at step 12 · resume it: ./motley launch --resume r"
    assert lines[1] == "  a  checkpoint 12 · nothing left · 1.2 s"
    assert lines[2] == "  b  off: not stopped there; if it comes back: ./motley stop"
    assert "still there: process 7 and port 29400; if that stays so, restart this machine · 1 had to" in lines[3]
    ports = told | {"ports": [29400, 29401]}
    pods = told | {"left": ["pod/r-1"], "stuck": "", "program": "kubectl --context=lab"}
    lines = stop_lines(["a", "b"], {"a": ports, "b": pods}, {})
    assert "still there: port 29400, 29401; if" in lines[1], "stop ends with 1 for it"
    assert "still there: pod/r-1; fix: kubectl --context=lab delete pod/r-1 · 1.2 s" in lines[2]


def test_runs_are_gathered_over_the_nodes() -> None:
    facts = {"step": 8, "steps": 40, "loss": 3.0, "time": 5.0, "done": False, "bytes": 1000000, "model": "tiny"}
    newer = facts | {"step": 12, "time": 9.0}
    answers = {"a": {"runs": {"r": facts}, "on": ""}, "b": {"runs": {"r": newer}, "on": "r"}}
    assert gathered(answers)["r"]["step"] == 12 and gathered(answers)["r"]["bytes"] == 2000000
    table = run_lines(answers, {"c": "off"})
    assert "12/40" in table[1] and " running " in table[1] and "a, b" in table[1] and table[2] == "c  off"


def test_a_run_by_rewards_shows_its_reward() -> None:
    facts = {"step": 8, "steps": 40, "loss": -0.01, "time": 5.0, "done": False, "bytes": 0, "model": "tiny"}
    both = {"runs": {"sums": facts | {"reward": 0.75}, "qa": facts | {"loss": 3.0}}, "on": ""}
    head, *lines = run_lines({"a": both}, {})
    known = dict(line.split(maxsplit=1) for line in lines)
    assert known["sums"].split("  ")[1].strip() == "reward 0.7500" and "-0.01" not in known["sums"]
    assert known["qa"].split()[1] == "3.0000"
    end = head.index("loss") + 4
    assert {line[:end].rstrip()[-4:] for line in lines} == {"7500", "0000"}, "they stand below one another"


def test_an_adapter_that_differs_is_found() -> None:
    files = {"results/r/adapter/x": "1", "logs/runs/r/events.jsonl": "5"}
    other = {"results/r/adapter/x": "2", "logs/runs/r/events.jsonl": "6"}
    assert disagreeing("results/r/adapter/", {"a": files, "b": other}) == ["results/r/adapter/x"]
    assert disagreeing("results/r/adapter/", {"a": files, "b": dict(files)}) == []
    homes = [{**files, "results/r/adapter/adapter_config.json": own} for own in ("1", "2")]
    assert disagreeing("results/r/adapter/", {"a": homes[0], "b": homes[1]}) == [], "it names each node's own folder"


def test_nothing_is_unpacked_outside_the_results() -> None:
    assert place_of("/etc/passwd", "r", "a", results=True) is None
    assert place_of("results/r/../../../x", "r", "a", results=True) is None
    assert place_of("results/r/adapter/x", "r", "a", results=True) == Path("adapter/x")
    assert place_of("results/r/adapter/x", "r", "a", results=False) is None
    assert place_of("logs/runs/r/events.jsonl", "r", "a", results=False) == Path("nodes/a/events.jsonl")


def test_a_model_is_fetched_as_an_adapter_is() -> None:
    model = {"a": {"logs/runs/r/events.jsonl": "1", "results/r/model/model.safetensors": "2"}, "b": {}}
    assert made_in("r", model) == "model" and made_in("r", {"a": {"results/r/adapter/x": "1"}}) == "adapter"
    assert made_in("r", {"a": {"logs/runs/r/events.jsonl": "1"}}) == "adapter", "nothing is there yet"
    receipt = {"run": "r", "differ": [], "silent": {}}
    lines = fetched_lines(receipt, Path("results/r"), {"a": 3}, ["a", "b"], made="model")
    assert lines[1] == "  model     results/r/model  the same on a, b"
