"""A running lab as a test sees it: hosts to look at, a controller to act from, playbooks with their results as data."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from lab import faults
from lab import lab as labs
from lab.host import Host
from lab.lab import Lab
from lab.place import Place
from lab.profile import PASSWORD, USER
from lab.shell import LabError
from tests.support import pace

REPOSITORY = Path(__file__).resolve().parents[2]
PLAY = Path(__file__).with_name("play.py")

FAR_AWAY = {"TZ": "EST5"}
"""The controller's zone is not the nodes', and seldom UTC."""


@dataclass(frozen=True, kw_only=True)
class Played:
    """What ansible-runner saw of one playbook."""

    rc: int
    stdout: str
    stats: dict[str, dict[str, int]]
    """Per kind (ok, changed, failures, dark, skipped …) and host: how many tasks."""
    results: list[dict[str, Any]] = field(default_factory=list)
    """Per task and host: task, host, event, result."""

    def went_well(self) -> Self:
        assert self.rc == 0, self.stdout
        return self

    def changed(self) -> dict[str, int]:
        hosts = {host for kind in self.stats.values() for host in kind}
        return {host: self.stats.get("changed", {}).get(host, 0) for host in sorted(hosts)}

    def of_task(self, name: str) -> dict[str, dict[str, Any]]:
        """Host → result of the task with this name."""
        return {entry["host"]: entry["result"] for entry in self.results if entry["task"] == name}


@dataclass(frozen=True)
class Cluster:
    lab: Lab
    folder: Path
    """For this test's files on the controller: known_hosts, inventories, results."""
    seat: str = ""
    """The node that is the controller; otherwise it is a machine of its own."""

    @property
    def desk(self) -> str:
        """The network namespace of whoever types."""
        return self.lab.host(self.seat).namespace if self.seat else self.lab.place.controller

    @property
    def hosts(self) -> list[Host]:
        return self.lab.hosts

    def __getitem__(self, name: str) -> Host:
        return self.lab.host(name)

    def controller(self, *argv: str | Path, **settings: Any) -> subprocess.CompletedProcess[str]:
        """Run a program on the controller."""
        return self._in(self.desk, *argv, **settings)

    def stranger(self, *argv: str | Path, **settings: Any) -> subprocess.CompletedProcess[str]:
        """Run a program on a machine of the LAN that is not part of the cluster."""
        return self._in(self.lab.place.stranger, *argv, **settings)

    def _in(
        self, namespace: str, *argv: str | Path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        program, *words = map(str, argv)
        if (installed := REPOSITORY / ".venv/bin" / program).exists():
            program = str(installed)  # a person has that folder in no PATH
        return pace.run(
            *("ip", "netns", "exec", namespace, program, *words),
            cwd=REPOSITORY,
            env=os.environ | {"MOTLEY_LAB": self.lab.place.name} | FAR_AWAY | dict(env or {}),
        )

    def ssh(self, host: str, command: str, *, password: str = PASSWORD) -> subprocess.CompletedProcess[str]:
        """Log in from the controller as a person with the password would, the host's key checked."""
        ask = self.folder / "askpass"
        ask.write_text('#!/bin/sh\necho "$TEST_PASSWORD"\n')
        ask.chmod(0o700)
        strict = f"-o UserKnownHostsFile={self.known_hosts()} -o StrictHostKeyChecking=yes"
        options = f"{strict} -o ConnectTimeout=5 -o NumberOfPasswordPrompts=1 -p {self[host].ssh_port}"
        address = self[host].spec.installed_address
        return self.controller(
            *["setsid", "--wait", "ssh", *options.split(), f"{USER}@{address}", command],
            env={"SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force", "TEST_PASSWORD": password},
        )

    @contextlib.contextmanager
    def suffers(self, name: str, fault: str, **how: float | str) -> Iterator[Host]:
        """Fixed whatever was found, or the tests that follow would fail for it too."""
        faults.inject(self.lab, self[name], fault, how)
        try:
            yield self[name]
        finally:
            faults.fix(self.lab, self[name], fault)

    def known_hosts(self) -> Path:
        """The hosts' keys as seen on their own disks: what a careful person would compare."""
        file = self.folder / "known_hosts"
        lines = []
        for host in self.hosts:
            key = (host.disk.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[:2]
            lines += [f"{address} {' '.join(key)}" for address in (host.spec.installed_address, host.spec.address)]
        file.write_text("\n".join(lines) + "\n")
        return file

    def inventory(self) -> Path:
        """The three hosts with their passwords and pinned keys, nothing else: for playbooks of a test's own."""
        hosts = {host.name: {"ansible_host": host.spec.installed_address} for host in self.hosts}
        trust = f"-o UserKnownHostsFile={self.known_hosts()} -o ControlPath={self.lab.place.root}/%C"
        variables = {
            "ansible_user": USER,
            "ansible_password": PASSWORD,
            "ansible_become_password": PASSWORD,
            "ansible_ssh_common_args": trust,
        }
        file = self.folder / "hosts.yml"
        file.write_text(json.dumps({"cluster": {"hosts": hosts, "vars": variables}}))
        return file

    def play(
        self,
        playbook: str | Path,
        inventory: str | Path | None = None,
        *,
        python: Sequence[str | Path] = (sys.executable,),
        **settings: Any,
    ) -> Played:
        """Run a playbook on the controller; settings are ansible-runner's (limit, cmdline, extravars …)."""
        with tempfile.TemporaryDirectory(dir=self.folder) as private:
            request = Path(private) / "request.json"
            asked = {"playbook": str(playbook), "inventory": str(inventory or self.inventory()), **settings}
            request.write_text(json.dumps(asked))
            done = self.controller(*python, PLAY, request)
            answer = Path(private) / "answer.json"
            assert answer.exists(), f"ansible-runner gave no result: {done.stdout}{done.stderr}"
            return Played(**json.loads(answer.read_text()))


@contextlib.contextmanager
def hosts(
    name: str,
    profile: str,
    suite: str | None,
    layers: Sequence[str] = (),
    shape: Sequence[str] = (),
    *,
    kept: Path | None = None,
) -> Iterator[Lab]:
    """Gone afterwards."""
    place = Place(name=name)
    try:
        with unless_torch_is_lacking():
            lab = labs.up(place, profile, suite, layers, shape, kept=kept)
        yield lab
    finally:
        labs.down(place)


@contextlib.contextmanager
def unless_torch_is_lacking() -> Iterator[None]:
    """Where none can be had for the hosts' Python, what needs it is named as not run."""
    try:
        yield
    except LabError as error:
        if found := re.search(r"there is no CPU build of torch for Python [\d.]+ at hand", str(error)):
            pytest.skip(f"NOT RUN: {found[0]}")
        raise
