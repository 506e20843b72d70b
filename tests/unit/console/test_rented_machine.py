"""When a watcher gives a machine back before its time: what it looks at, and what it leaves to others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console import rented_machine
from console.infra.node import MARK, Silent
from console.rent.lease import READY, Book, Lease, now
from train.files import file_hash

RUNNING, ENDED, NONE = {"on": True, "run": "mine"}, {"on": False, "run": "mine"}, {"on": False, "run": ""}


class OneNode:
    def __init__(self, status: dict[str, Any] | None) -> None:
        self.answer = status

    def status(self) -> dict[str, Any]:
        if self.answer is None:
            raise Silent("nobody answers")
        return self.answer


@pytest.fixture
def lease(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lease:
    monkeypatch.setenv("MOTLEY_RENTED", str(tmp_path))
    made = Lease(
        mark="motley-me-1", market="", state=READY, server=6, gpu="RTX 4090", usd_h=0.4, currency="", hours=3,
        born=now(), order=1000,
    )  # fmt: skip
    Book(tmp_path.resolve()).write(made)
    return made


def look(lease: Lease, status: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch, *, whole: bool = True) -> str:
    monkeypatch.setattr(rented_machine, "node_of", lambda lease: OneNode(status))
    monkeypatch.setattr(rented_machine, "fetched", lambda lease, run: f"{run} is fetched" if whole else "")
    return rented_machine.look(lease)


def test_it_goes_back_once_its_run_is_fetched(lease: Lease, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert look(lease, RUNNING, monkeypatch) == ""
    kept = Book(tmp_path.resolve()).read(lease.mark)
    assert kept and kept.run == "mine"
    assert look(lease, ENDED, monkeypatch, whole=False) == ""
    assert look(lease, ENDED, monkeypatch) == "mine is fetched"


def test_one_that_does_not_answer_stays_until_its_time(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(lease, None, monkeypatch) == ""


def test_one_that_nobody_uses_goes_back_and_one_that_a_launch_prepares_stays(
    lease: Lease, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert look(lease, NONE, monkeypatch) == ""
    old = replace(lease, born=replace(lease.born, up=lease.born.up - 3000))
    with Book(tmp_path.resolve()).part(old, "used"):
        assert look(old, NONE, monkeypatch) == ""
        assert look(old, ENDED, monkeypatch) == "", "the launch fetches it"
    assert "no run was started within 40 minutes" in look(old, NONE, monkeypatch)


def test_the_machine_ends_its_run_while_there_is_time_to_fetch_it(lease: Lease) -> None:
    three_hours, six_minutes = rented_machine.run_ends_s(lease), rented_machine.run_ends_s(replace(lease, hours=0.1))
    assert 3 * 3600 - 601 < three_hours <= 3 * 3600 - 600
    assert 320 < six_minutes < 330


@pytest.mark.parametrize(
    ("facts", "waits"),
    [
        ({"events": [{"event": "done"}], "now": {"state": "running"}}, True),
        ({"events": [{"event": "warning"}], "now": {"state": "running"}}, False),
        ({"events": [], "now": {"state": "running"}}, False),
        ({"events": [], "now": None}, False),
        ({"events": [], "now": {"state": "failed"}}, True),
    ],
)
def test_a_run_or_a_script_that_has_said_its_end_is_waited_for(
    facts: dict[str, Any], waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Detached, nobody waits; at its end the processes are gone within seconds."""
    answers = [RUNNING | facts, RUNNING | facts, ENDED | facts]

    class Leaving:
        def status(self) -> dict[str, Any]:
            return answers.pop(0)

    monkeypatch.setattr(rented_machine.time, "sleep", lambda _: None)
    assert rented_machine.settled(Leaving())["on"] is not waits  # type: ignore[arg-type]


@pytest.mark.parametrize("manifest", ["whole", "of another", "a list"])
def test_what_a_run_can_be_resumed_from_is_unpacked_and_compared(
    lease: Lease, manifest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where Python's tarfile knows no filters, as on Debian 12; a link in it is left out."""
    made = tmp_path / "home" / "step-7"
    made.mkdir(parents=True)
    (made / "state").write_bytes(b"weights")
    hashes = {"state": file_hash(made / "state") if manifest == "whole" else "0"}
    (made / "manifest.json").write_text(json.dumps([hashes] if manifest == "a list" else hashes))
    (made / "link").symlink_to("/etc/passwd")
    (made / "folder").mkdir()
    (made / "folder/file").write_text("deep")

    class Node:
        home = "~/ai-cluster"
        status = staticmethod(lambda: {"checkpoint": 7})

        def command(self, words: list[str]) -> list[str]:
            assert "step-7" in words[-1]
            return ["sh", "-c", f"echo a word of its shell; echo '{MARK}'; tar -C {made.parent} -cf - step-7"]

    monkeypatch.setattr(rented_machine, "node_of", lambda _: Node())
    monkeypatch.setattr(rented_machine, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(rented_machine, "check", lambda _: None)
    monkeypatch.setattr(rented_machine, "fetch", lambda *_: 0)
    monkeypatch.delattr(rented_machine.tarfile.TarFile, "extractall")
    assert bool(rented_machine.fetched(lease, "mine")) is (manifest == "whole")
    kept = tmp_path / "results/mine/checkpoint/step-7"
    assert sorted(path.name for path in kept.iterdir()) == ["folder", "manifest.json", "state"]
