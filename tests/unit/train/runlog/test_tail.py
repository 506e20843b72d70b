"""A file of events is read while another process writes it."""

import json

from train.runlog.tail import Tail, read


def test_a_growing_file_is_read_in_whole_lines_also_when_it_begins_again(tmp_path):
    file = tmp_path / "events.jsonl"
    tail = Tail(file)
    assert tail.events() == []
    file.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert tail.events() == [{"step": 1}, {"step": 2}]
    file.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n')
    assert tail.events() == [{"step": 3}] and tail.events() == []
    file.write_text('{"step": 9}\n')
    tail.events()
    with file.open("a") as more:
        more.write('{"step": 10}\n')
    assert tail.events()[-1] == {"step": 10}


def test_of_a_long_file_the_end_is_enough(tmp_path):
    file = tmp_path / "events.jsonl"
    file.write_text("".join(f'{{"step": {number}}}\n' for number in range(1000)))
    tail = Tail(file, last_bytes=100)
    assert [event["step"] for event in tail.events()] == list(range(993, 1000))
    assert tail.events() == [] and len(read(file)) == 1000


def test_wherever_the_end_begins_only_whole_lines_are_read(tmp_path):
    """The piece of a line may look like one: each node of a step has braces of its own."""
    file = tmp_path / "events.jsonl"
    line = json.dumps({"event": "step", "time": 1.5, "nodes": {"a": {"rows": 14}, "b": {"rows": 7}}}).encode()
    file.write_bytes(3 * (line + b"\n"))
    for last in range(1, 3 * len(line) + 10):
        whole = min(3, last // (len(line) + 1))
        assert Tail(file, last_bytes=last).news() == [(json.loads(line), line)] * whole, last
        assert Tail(file, last_bytes=last).read() == (line + b"\n") * whole, last


def test_a_line_that_is_no_event_is_left_out(tmp_path):
    file = tmp_path / "events.jsonl"
    file.write_text('{"step": 1}\n{"st{"step": 2}}\n[3]\nfour\n\n{"step": 5}\n')
    assert read(file) == [{"step": 1}, {"step": 5}]
