"""What a small file of a node is read as, where it is not as it should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugins.module_utils.motley.files import read_json


def test_an_object_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"step": 3}')
    assert read_json(tmp_path / "a") == {"step": 3}


@pytest.mark.parametrize("content", [b"", b'{"step": ', b"[1, 2]", b"null", b"\xff\xfe"])
def test_what_is_no_object_is_an_empty_one(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    assert read_json(tmp_path / "a") == {} and read_json(tmp_path / "missing") == {}
