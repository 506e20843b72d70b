"""One hash for what lies in a folder, by its contents or, where they would have to be read, by names and sizes."""

from pathlib import Path
from typing import Any

from train.files import file_hash
from train.versions import content_hash


def memo_of(*files: Path) -> dict[str, list[Any]]:
    return {file.name: [file.stat().st_size, file.stat().st_mtime_ns, file_hash(file)] for file in files}


def test_a_folder_is_known_by_its_contents_or_by_sizes_alone(tmp_path):
    first, second = tmp_path / "a.bin", tmp_path / "b.bin"
    first.write_text("one")
    second.write_text("two")
    whole = content_hash(tmp_path)
    assert whole and content_hash(tmp_path, memo_of(first, second)) == whole
    by_size = content_hash(tmp_path, {})
    assert by_size and by_size.endswith(" (by size)")
    for known in (first, second):
        assert content_hash(tmp_path, memo_of(known)) == by_size, "whichever of the files a node has hashed"
    second.write_text("2")
    assert content_hash(tmp_path, {}) != by_size
