"""A package that a phase needs: from the lists that are there, else from new ones; apt's own words where neither do."""

from __future__ import annotations

import subprocess
from pathlib import Path
from unittest.mock import Mock

import pytest

from plugins.modules import apt_packages

DEAD = "E: The repository 'https://gone.example stable Release' no longer has a Release file."
UNKNOWN = "E: Unable to locate package nftables"


class Machine:
    """Its package lists name nftables, or do once they are fetched, or never do."""

    def __init__(self, lists: str) -> None:
        self.lists, self.ran = lists, list[str]()

    def runs(self, *command: str) -> subprocess.CompletedProcess[str]:
        word = next((word for word in ("update", "install") if word in command), command[0])
        self.ran.append(word)
        stderr = ""
        if word == "update":
            stderr, self.lists = DEAD, self.lists.replace("empty", "there")
        if word == "install" and self.lists != "there":
            stderr = UNKNOWN
        stdout = "amd64" if word == "dpkg" else "ii \tbash\t5.2\t" if word == "dpkg-query" else ""
        return subprocess.CompletedProcess(command, 100 if stderr else 0, stdout, stderr)


@pytest.fixture
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    machine = Machine(request.param)
    monkeypatch.setattr(apt_packages.Apt, "_run", staticmethod(machine.runs))
    monkeypatch.setitem(apt_packages.Apt.refresh.__globals__, "RUN", tmp_path)
    return machine


@pytest.mark.parametrize(
    ("machine", "ran"),
    [("there", ["install"]), ("empty", ["install", "update", "install"])],
    indirect=["machine"],
)
def test_a_dead_source_keeps_nothing_from_being_installed(machine: Machine, ran: list[str]) -> None:
    apt_packages.install(apt_packages.Apt(), ["nftables"])
    assert machine.ran == ran


@pytest.mark.parametrize("machine", ["without it"], indirect=True)
def test_what_apt_says_of_package_and_sources_is_told(machine: Machine) -> None:
    with pytest.raises(apt_packages.ModuleError, match=r"Unable to locate package nftables; .*gone\.example"):
        apt_packages.install(apt_packages.Apt(), ["nftables"])


@pytest.mark.parametrize("machine", ["empty"], indirect=True)
@pytest.mark.parametrize(("name", "changed"), [("nftables", True), ("bash", False)])
def test_check_mode_needs_no_lists(machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str, changed: bool) -> None:
    module = Mock(params={"names": [name], "wait_s": 300}, check_mode=True)
    monkeypatch.setattr(apt_packages, "module_of", lambda page: module)
    apt_packages.main()
    assert module.exit_json.call_args.kwargs["changed"] is changed
    assert not {"install", "update"} & set(machine.ran)
