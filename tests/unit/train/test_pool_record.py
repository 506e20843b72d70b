"""What is done, on a machine's disk."""

from pathlib import Path

import pytest

from train.pool.pieces import Done, Piece
from train.pool.record import OwnDisk, Record

DONE = Done(Piece(7, {}), "a", 1.0, {"text": "x"}, generation=3)


class FullDisk(OwnDisk):
    def append(self, file: Path, line: str) -> None:
        raise OSError(28, "No space left on device", str(file))


def test_what_the_disk_has_not_taken_is_not_in_the_record(tmp_path):
    """Whoever tells it again writes it, also where nobody has seen the first error."""
    record = Record(tmp_path / "pieces.jsonl", FullDisk())
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            record.add(DONE)
    assert record.generations == {}
    record.disk = OwnDisk()
    assert record.add(DONE) and not record.add(DONE)
    assert Record(record.file, OwnDisk()).done == {7: DONE}


def test_what_unicode_calls_a_new_line_does_not_end_a_line(tmp_path):
    """Models write such characters, and JSON keeps them as they are."""
    done = Done(Piece(1, {}), "a", 1.0, {"text": "one\u2028two\x85three\nfour"}, generation=1)
    record = Record(tmp_path / "pieces.jsonl", OwnDisk())
    assert record.add(done) and record.add(DONE)
    assert Record(record.file, OwnDisk()).done == {1: done, 7: DONE}
