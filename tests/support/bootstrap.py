"""Bootstrap as a person does it, on a lab's hosts: an inventory file, one command, what it printed and its receipt."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from lab import base
from lab.profile import PASSWORD, USER
from tests.support import pace
from tests.support.cluster import REPOSITORY, Cluster, hosts
from tests.support.screen import Screen


def hint(words: str) -> str:
    """A pattern of this command in a message: with the inventory that a person typed."""
    verb, _, rest = words.partition(" ")
    return rf"\./motley {verb} --inventory (?:'[^']+'|\S+)" + (f" {re.escape(rest)}" if rest else "")


@dataclass(frozen=True)
class Said:
    rc: int
    out: str
    receipt: dict[str, Any]

    def went_well(self) -> Self:
        assert self.rc == 0, self.out
        return self

    def changed(self) -> dict[str, int]:
        return {name: node["changed"] for name, node in self.receipt["nodes"].items()}

    def proven(self, node: str) -> str:
        return "\n".join(line for phase in self.receipt["nodes"][node]["phases"].values() for line in phase["proven"])


@dataclass(frozen=True)
class Person:
    """Somebody with three machines and a file about them."""

    cluster: Cluster
    folder: Path

    def writes(self, nodes: Mapping[str, Mapping[str, Any]] | None = None, **shared: Any) -> Path:
        """hosts.yml from the lab's profile; `nodes` adds keys to single nodes, `shared` to all; None takes one out."""
        profile = self.cluster.lab.profile
        variables = {
            "ansible_user": USER,
            "motley_subnet": str(profile.network),
            "motley_gateway": profile.gateway,
            "motley_dns": [],
            "motley_state": str(self.state),
            "motley_preflight_disk_gb": 0.5,
            "motley_gpu_driver_manage": False,  # tests/roles/test_gpu_driver.py
            "motley_static_ip_rollback_s": pace.seconds(60),
            "motley_static_ip_reconnect_s": pace.seconds(25),
            "motley_python_env_manage": False,  # a set takes minutes: tests/roles/test_python_env.py
        }
        hosts = {
            host.name: _without_none(
                {"motley_address": host.spec.address, "motley_current_address": host.spec.installed_address}
                | ({} if host.ssh_port == 22 else {"ansible_port": host.ssh_port})
                | dict((nodes or {}).get(host.name, {}))
            )
            for host in self.cluster.hosts
        }
        self.inventory.mkdir(parents=True, exist_ok=True)
        link = self.inventory / "group_vars"
        if not link.exists():
            link.symlink_to(REPOSITORY / "inventory/homelab/group_vars")
        text = json.dumps({"cluster": {"vars": _without_none(variables | shared), "hosts": hosts}}, indent=1)
        (self.inventory / "hosts.yml").write_text(text)
        return self.inventory

    @classmethod
    def with_inventory(cls, cluster: Cluster, folder: Path, **shared: Any) -> Self:
        person = cls(cluster, folder)
        person.writes(**shared)
        return person

    @property
    def inventory(self) -> Path:
        return self.folder / "my inventory"

    @property
    def state(self) -> Path:
        return self.folder / "my state"

    def command(self, *words: str, limit: str = "", phase: str = "") -> list[str]:
        chosen = [*(["--limit", limit] if limit else []), *(["--phase", phase] if phase else [])]
        return [sys.executable, "-m", "console", words[0], "--inventory", str(self.inventory), *chosen, *words[1:]]

    def environment(self, password: str = PASSWORD, sudo: str | None = None, **more: str) -> dict[str, str]:
        extra = {} if sudo is None else {"MOTLEY_SUDO_PASSWORD": sudo}
        return {"MOTLEY_PASSWORD": password, "MOTLEY_ACCEPT_KEYS": "yes", **extra, **more}

    def types(self, *words: str, limit: str = "", phase: str = "", **environment: Any) -> Said:
        before = set(self.receipts())
        env = self.environment(**environment)
        done = self.cluster.controller(*self.command(*words, limit=limit, phase=phase), env=env)
        new = sorted(set(self.receipts()) - before)
        receipt = json.loads(new[-1].read_text()) if new else {}
        return Said(done.returncode, done.stdout + done.stderr, receipt)

    def starts(self, *words: str, limit: str = "", phase: str = "") -> subprocess.Popen[str]:
        """The same, not waited for; in a process group of its own, so that all of it can be killed."""
        env = os.environ | self.environment() | {"MOTLEY_LAB": self.cluster.lab.place.name}
        command = ["ip", "netns", "exec", self.cluster.desk, *self.command(*words, limit=limit, phase=phase)]
        return subprocess.Popen(
            command, cwd=REPOSITORY, env=env, stdin=subprocess.DEVNULL, text=True, start_new_session=True
        )

    def sits_at(self, *words: str, limit: str = "", phase: str = "") -> Screen:
        """The same on a terminal, for what asks back."""
        inside = ["netns", "exec", self.cluster.desk]
        env = os.environ | self.environment() | {"MOTLEY_LAB": self.cluster.lab.place.name, "TERM": "dumb"}
        command = [*inside, *self.command(*words, limit=limit, phase=phase)]
        return Screen("ip", command, cwd=str(REPOSITORY), env=env, encoding="utf-8")

    def at_work(self) -> list[str]:
        """What runs for this person on the controller; connections that are kept open do not name the folder."""
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                found.append(file.read_text(errors="replace").replace("\0", " "))
        return [words for words in found if str(self.folder) in words]

    def launches(
        self,
        *words: str,
        playbook: str = "launch.yml",
        env: Mapping[str, str] | None = None,
        starts: bool = False,
        **variables: Any,
    ) -> Said:
        """`ansible-playbook launch.yml -e NAME=VALUE …` from the project's root; mostly without the run itself."""
        variables |= {} if starts else {"motley_start_now": "false"}
        extra = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
        program = Path(sys.executable).parent / "ansible-playbook"
        command: list[str | Path] = [program, "-i", self.inventory, playbook, *words, *extra]
        done = self.cluster.controller(*command, env={"MOTLEY_CACHE": str(self.folder / "cache"), **(env or {})})
        return Said(done.returncode, done.stdout + done.stderr, {})

    def plans(self, *words: str, **variables: Any) -> Said:
        return self.launches(*words, playbook="playbooks/plan.yml", **variables)

    def receipts(self) -> list[Path]:
        return sorted((self.state / "receipts").glob("*.json"))

    def whole_receipts(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in self.receipts()]

    def bootstraps(self, *words: str, **chosen: Any) -> Said:
        return self.types("bootstrap", *words, **chosen).went_well()


@contextlib.contextmanager
def person_with_trio(name: str, *layers: str, suite: str = "") -> Iterator[Person]:
    """Three fresh hosts, which are gone afterwards."""
    with tempfile.TemporaryDirectory() as folder, hosts(name, "trio", suite or base.default_suite(), layers) as lab:
        yield Person(Cluster(lab, Path(folder)), Path(folder))


def taken_back_soon() -> dict[str, int]:
    """For a change of the network that is going to be taken back, which is then waited for."""
    return {"motley_static_ip_rollback_s": pace.seconds(25), "motley_static_ip_reconnect_s": pace.seconds(12)}


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def python_of(person: Person) -> str:
    """The hosts'."""
    return person.cluster.hosts[0].run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
