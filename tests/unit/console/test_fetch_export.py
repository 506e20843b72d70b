"""What a node has made for other programs comes here: whole or, after a fault, from where it stopped."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from console import fetch_export, use_result
from console.infra.machines.node import LocalNode
from console.inventory.read import Inventory
from tests.support.folders import inventory_of
from tests.support.stand_ins import program
from train.errors import BadInput

CONTENT = bytes(range(256)) * 20_000
DIGEST = hashlib.sha256(CONTENT).hexdigest()
MADE = """#!/bin/sh
echo "$@" >> asked
echo "merging" >&2
cat said
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failing(LocalNode):
    """Its connection breaks after so many bytes of a file."""

    after: ClassVar[int] = 3_000_000
    offsets: ClassVar[list[int]] = []

    def exported(self, file: str, offset: int) -> subprocess.Popen[bytes]:
        self.offsets.append(offset)
        words = ["head", "-c", str(self.after), f"{self.home}/exports/{file}"]
        return subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A node with run qa, which is done, and its export as `train export --json` says it."""
    home = tmp_path / "home of a"
    (home / "logs/runs/qa").mkdir(parents=True)
    start = {"event": "start", "time": 1, "total_steps": 9}
    (home / "logs/runs/qa/events.jsonl").write_text(json.dumps(start) + "\n")
    (home / "results/qa/adapter").mkdir(parents=True)
    (home / "exports/qa/gguf-q8_0").mkdir(parents=True)
    (home / "exports/qa/gguf-q8_0/m.gguf").write_bytes(CONTENT)
    (home / "said").write_text(f"a banner\n{json.dumps(made(home))}\n")
    program(home / "env/bin/python", MADE)
    return home


def made(home: Path) -> dict[str, Any]:
    sizes, hashes = {"m.gguf": len(CONTENT)}, {"m.gguf": DIGEST}
    return {"ok": True, "folder": f"{home}/exports/qa/gguf-q8_0", "files": sizes, "sha256": hashes}


def get(home: Path, results: Path, node: type[LocalNode] = LocalNode, **files: int) -> int:
    said = made(home)
    said["files"] |= files
    return fetch_export.fetch(node(name="a", home=str(home)), "qa", said, results)


@pytest.fixture
def inventory(tmp_path: Path, home: Path) -> Inventory:
    return inventory_of(tmp_path, {"a": home})


def test_it_comes_with_its_use(
    inventory: Inventory, home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "results"
    assert use_result.export(inventory, "", "gguf", here, quant="q4_0") == 0
    said = capfd.readouterr()
    assert (here / "qa/gguf-q8_0/m.gguf").read_bytes() == CONTENT
    assert "export gguf --quant q4_0 --json --run qa --home ." in (home / "asked").read_text()
    assert said.out.startswith("run qa · on a\n") and said.err == "merging\n", "what it says on the way is heard"
    assert said.out.endswith("ollama create qa -f Modelfile && ollama run qa\n") and "a banner" not in said.out
    shutil.rmtree(home / "exports")  # it is here: nothing is asked for
    assert use_result.export(inventory, "qa", "gguf", here) == 0


def test_it_continues_where_a_connection_broke(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert get(home, tmp_path, Failing) == 1
    assert "it continues there" in capsys.readouterr().out
    folder = tmp_path / "qa/gguf-q8_0"
    [part] = folder.iterdir()
    assert part.stat().st_size == Failing.after and part.name.startswith(".m.gguf.")
    part.write_bytes(b"x" + part.read_bytes()[1:])  # what it continues is not sent a second time
    assert get(home, tmp_path) == 1
    assert "did not arrive as it was" in capsys.readouterr().out and not list(folder.iterdir())
    assert (get(home, tmp_path, Failing), get(home, tmp_path)) == (1, 0)
    assert [path.name for path in folder.iterdir()] == ["m.gguf"]
    assert (folder / "m.gguf").read_bytes() == CONTENT


def test_a_part_of_another_file_is_not_continued(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "qa/gguf-q8_0"
    folder.mkdir(parents=True)
    (folder / f".m.gguf.{'0' * 12}.part").write_bytes(b"old")
    assert get(home, tmp_path) == 0
    assert [path.name for path in folder.iterdir()] == ["m.gguf"]


def test_a_disk_without_room_is_said_before_anything_comes(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    assert get(home, tmp_path) == 1
    said = capsys.readouterr().out
    assert "are free\nfix: make room, or --results FOLDER on another disk" in said and f"It lies on a: {home}" in said
    assert not list((tmp_path / "qa/gguf-q8_0").iterdir())


def test_a_disk_that_fills_up_keeps_what_has_come(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fills(_: Any, out: Any, __: Any) -> None:
        out.write(CONTENT[:1000])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(fetch_export, "append", fills)
        assert get(home, tmp_path) == 1
    assert "is full; what has come is kept\nfix: make room" in capsys.readouterr().out
    assert get(home, tmp_path) == 0


def test_a_name_that_leads_elsewhere_is_not_written(home: Path, tmp_path: Path) -> None:
    assert get(home, tmp_path / "results", **{"../../../m.gguf": 5}) == 0
    assert sorted(path.name for path in tmp_path.rglob("m.gguf")) == ["m.gguf", "m.gguf"]


def test_what_is_refused_there_is_heard_here(
    inventory: Inventory, home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (home / "env/bin/python").write_text("#!/bin/sh\necho 'q4_k_m: only llama-quantize' >&2; exit 2\n")
    assert use_result.export(inventory, "qa", "gguf", tmp_path / "results", quant="q4_k_m") == 2
    assert capfd.readouterr().err == "q4_k_m: only llama-quantize\n" and not (tmp_path / "results").exists()


def test_a_quant_of_what_has_none_is_refused(inventory: Inventory, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--quant q4_0 is of a gguf: merged is never quantised"):
        use_result.export(inventory, "qa", "merged", tmp_path, quant="q4_0")
