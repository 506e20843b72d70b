"""A node that an earlier commit bootstrapped (tests/kept): today's undo understands what that commit recorded."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from plugins.module_utils.motley.undo_record import Before, digest

KEPT = Path(__file__).parents[1] / "kept/node-67676e9"
RECORDS = Path("var/lib/motley/before")
LAST_FIRST = ("run", "power", "firewall", "static_ip", "hostname", "ssh_trust")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The kept files, with this folder for the node's root and this user for theirs."""
    for part in ("etc", "home", "var"):
        shutil.copytree(KEPT / part, tmp_path / part)
    for manifest in (tmp_path / RECORDS).glob("*/manifest.json"):
        data = json.loads(manifest.read_text())
        data["files"] = {f"{tmp_path}{path}": entry for path, entry in data["files"].items()}
        data["folders"] = [f"{tmp_path}{folder}" for folder in data["folders"]]
        for entry in data["files"].values():
            if "owner" in entry:
                entry["owner"] = [os.geteuid(), os.getegid()]
        manifest.write_text(json.dumps(data))
    return tmp_path


def put_back(node: Path, phase: str) -> list[str]:
    """Without the commands, which act on services."""
    before = Before(phase, node / RECORDS)
    assert before.recorded and all(command and command[0] for command in before.data["undo"])
    remarks = before.restore()
    before.forget()
    return remarks


def files(node: Path) -> dict[str, dict[str, str]]:
    found = [path for path in node.rglob("*") if path.is_file()]
    modes = {path: f"{path.stat().st_mode & 0o7777:o}" for path in found}
    return {f"/{path.relative_to(node)}": {"sha256": digest(path), "mode": mode} for path, mode in modes.items()}


def test_every_file_is_as_it_was_before(node: Path) -> None:
    assert {folder.name for folder in (node / RECORDS).iterdir()} == set(LAST_FIRST)
    assert [remark for phase in LAST_FIRST for remark in put_back(node, phase)] == []
    assert files(node) == json.loads((KEPT / "before.json").read_text())


def test_what_its_owner_wrote_since_then_stays(node: Path) -> None:
    hosts = node / "etc/hosts"
    hosts.write_text(hosts.read_text() + "10.77.0.9 printer\n")
    remarks = put_back(node, "hostname")
    assert len(remarks) == 1 and "only Motley's block is taken out" in remarks[0]
    assert hosts.read_text().endswith("10.77.0.9 printer\n") and "motley" not in hosts.read_text()
