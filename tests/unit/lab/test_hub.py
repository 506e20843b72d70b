"""The lab's hub, asked as its client asks."""

import hashlib
import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.hub import PIECE
from tests.support import stand_ins

SIZE = 5 * PIECE + 3


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    (tmp_path / "me/model").mkdir(parents=True)
    with stand_ins.hub(tmp_path) as address:
        yield tmp_path, int(address.rpartition(":")[2])


def got(port: int, path: str, **headers: str) -> bytes:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    link.request("GET", path, headers=headers)
    try:
        return link.getresponse().read()
    except http.client.IncompleteRead as broken:
        return broken.partial
    finally:
        link.close()


def test_a_file_that_takes_no_disk_is_described_and_sent_as_the_zeros_that_it_is(hub) -> None:
    folder, port = hub
    file = folder / "me/model/model.safetensors"
    with file.open("wb") as made:
        made.truncate(SIZE)
    assert not file.stat().st_blocks
    (about,) = json.loads(got(port, "/api/models/me/model"))["siblings"]
    assert about["lfs"] == {"sha256": hashlib.sha256(bytes(SIZE)).hexdigest(), "size": SIZE, "pointerSize": 132}
    assert got(port, "/me/model/resolve/main/model.safetensors") == bytes(SIZE)


def test_a_part_a_break_and_damage(hub) -> None:
    folder, port = hub
    data, place = os.urandom(SIZE), "/me/model/resolve/main/weights"
    (folder / "me/model/weights").write_bytes(data)
    assert got(port, place, Range=f"bytes={PIECE - 5}-") == data[PIECE - 5 :]
    (folder / "behaviour.json").write_text(json.dumps({"drop": {"weights": PIECE + 9}, "damage": {"weights": 2}}))
    assert got(port, place) == bytes([data[0] ^ 1]) + data[1 : PIECE + 9]
    assert got(port, place) == bytes([data[0] ^ 1]) + data[1:]
    assert got(port, place) == data
    (folder / "me/model/weights").write_bytes(data[::-1])
    (about,) = json.loads(got(port, "/api/models/me/model"))["siblings"]
    assert about["lfs"]["sha256"] == hashlib.sha256(data[::-1]).hexdigest(), "it knows the file that was"
