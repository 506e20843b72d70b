"""A file of events is read while another process writes it."""

from __future__ import annotations

from pathlib import Path

from train.runlog.tail import Tail, read


def test_a_growing_file_is_read_in_whole_lines_also_when_it_begins_again(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    tail = Tail(file)
    assert tail.lines() == []
    file.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert tail.lines() == [b'{"step": 1}', b'{"step": 2}']
    file.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n')
    assert tail.lines() == [b'{"step": 3}'] and tail.lines() == []
    file.write_text('{"step": 9}\n')
    tail.lines()
    with file.open("a") as more:
        more.write('{"step": 10}\n')
    assert tail.lines()[-1] == b'{"step": 10}'


def test_of_a_long_file_the_end_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text("".join(f'{{"step": {number}}}\n' for number in range(1000)))
    tail = Tail(file, last_bytes=100)
    assert [event["step"] for event in tail.events()] == list(range(993, 1000))
    assert tail.events() == [] and len(read(file)) == 1000
