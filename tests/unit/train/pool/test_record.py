"""The record of what is done, on a machine's disk."""

import json
from pathlib import Path
from typing import Any

import pytest

from train.pool.pieces import Done, Piece
from train.pool.record import Disk, Record


def done(number: int, node: str, generation: int = 1, text: str = "x") -> Done:
    return Done(Piece(number, {}), node, 1.0, {"text": text}, generation)


def full(*_: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run/pieces.jsonl"


def test_a_record_keeps_each_piece_once(file):
    record = Record(file, Disk())
    assert record.add(done(1, "n0")) and record.add(done(2, "n1", 3))
    assert not record.add(done(1, "n1")) and not record.add(done(2, "n0", 2))
    assert record.add(done(1, "n2", 2))
    assert {n: one.node for n, one in Record(file, Disk()).done.items()} == {1: "n2", 2: "n1"}
    assert record.generations == {1: 2, 2: 3}


def test_half_a_line_is_dropped_and_the_next_one_is_whole(file):
    Record(file, Disk()).add(done(1, "n0"))
    with file.open("a") as torn:
        torn.write('{"piece": {"numb')
    record = Record(file, Disk())
    assert list(record.done) == [1]
    record.add(done(2, "n0"))
    assert [json.loads(line)["piece"]["number"] for line in file.read_text().splitlines()] == [1, 2]


@pytest.mark.parametrize("line", ["\0\0\0", "{}", "null", '{"piece": {}}'])
def test_the_piece_of_a_line_that_a_disk_has_changed_is_done_again(file, line):
    Record(file, Disk()).add(done(1, "n0"))
    file.write_text(f"{line}\n{file.read_text()}")
    record = Record(file, Disk())
    assert list(record.done) == [1] and record.add(done(2, "n0"))


def test_another_process_of_a_machine_reads_and_does_not_write(file):
    Record(file, Disk()).add(done(1, "n0"))
    other = Record(file, Disk(), writes=False)
    assert other.add(done(2, "n0")) and list(Record(file, Disk()).done) == [1]


@pytest.mark.parametrize("refuses", ["train.runlog.events.os.fsync", "train.pool.record.Disk.append"])
def test_what_a_full_disk_does_not_take_is_in_no_record_until_it_is_told_again(file, monkeypatch, refuses):
    """Also where nobody has seen the first error; and it is not there in half."""
    record = Record(file, Disk())
    record.add(done(1, "n0"))
    with monkeypatch.context() as patched:
        patched.setattr(refuses, full)
        for _ in range(2):
            with pytest.raises(OSError, match="No space"):
                record.add(done(2, "n0"))
    assert record.generations == {1: 1} and list(Record(file, Disk()).done) == [1]
    assert record.add(done(2, "n0")) and not record.add(done(2, "n0"))
    assert list(Record(file, Disk()).done) == [1, 2]


def test_what_unicode_calls_a_new_line_does_not_end_a_line(file):
    """Models write such characters, and JSON keeps them as they are."""
    kept = {1: done(1, "a", text="one\u2028two\x85three\nfour"), 7: done(7, "a")}
    record = Record(file, Disk())
    assert all(record.add(one) for one in kept.values())
    assert Record(file, Disk()).done == kept
