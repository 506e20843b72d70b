"""slurm.conf and gres.conf for machines of one's own, from what they say of themselves; shown, never installed.

python -m console slurm-conf [--to FOLDER] [--inventory FOLDER]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from console import render
from console.infra.node import ask_all, from_inventory
from console.infra.slurm.machine_facts import MachineFacts
from console.text_layout import say
from train.errors import BadInput

if TYPE_CHECKING:
    from console.inventory.read import Inventory

MACHINE_FACTS = "console.infra.slurm.machine_facts"
FILES = {"slurm.conf": "slurm.conf.j2", "gres.conf": "gres.conf.j2", "cgroup.conf": "cgroup.conf.j2"}
OPTIONS: dict[str, str] = {
    "AuthType": "auth/munge",
    "SlurmUser": "slurm",
    "StateSaveLocation": "/var/lib/slurm/slurmctld",
    "SlurmdSpoolDir": "/var/lib/slurm/slurmd",
    "ProctrackType": "proctrack/cgroup",
    "TaskPlugin": "task/affinity,task/cgroup",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core",
    "MpiDefault": "none",
    "ReturnToService": "2",  # a machine that was off is back without a word of root's
    "JobRequeue": "1",
    "KillWait": "60",  # a run saves when it is cancelled
    "MinJobAge": "3600",
}
"""Debian's and Ubuntu's own folders; the rest is Slurm's default."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """A node as slurm.conf describes it."""

    name: str
    address: str
    sockets: int
    cores: int
    """The cores of each socket."""
    threads: int
    """The threads of each core."""
    memory_mb: int
    cards: Sequence[Mapping[str, str]] = ()
    """The type and the file of each."""

    @property
    def cpus(self) -> int:
        return self.sockets * self.cores * self.threads

    @property
    def gres(self) -> str:
        counts = Counter(card["type"] for card in self.cards)
        return ",".join(f"gpu:{kind}:{count}" for kind, count in counts.items())


def rendered(cluster: str, nodes: Sequence[Machine], own: Mapping[str, str] | None = None) -> dict[str, str]:
    """File → content. `own`: options that replace ours; the first node gets the controller of Slurm."""
    values = {"cluster": cluster, "nodes": nodes, "options": OPTIONS | dict(own or {})}
    return {name: render.rendered(template, values) for name, template in FILES.items()}


def slurm_conf(inventory: Inventory, *, to: str) -> int:
    if there := [name for name in FILES if to and (Path(to) / name).exists()]:
        what = f"{to} has a {there[0]} already, which would be lost"
        raise BadInput(what, fix="fix: name another folder: --to slurm; then compare the two")
    nodes = from_inventory(inventory)
    answers, silent = ask_all(nodes, lambda node: node.read_by(MachineFacts, MACHINE_FACTS, "facts()"))
    if silent:
        for name, reason in silent.items():
            say(f"{name}  {reason}")
        say("the files name every machine, so all must answer\nfix: switch it on, or take it out of the inventory")
        return 1
    addresses = {name: str(inventory.nodes[name]["motley_address"]) for name in answers}
    machines = [Machine(name=name, address=addresses[name], **facts) for name, facts in answers.items()]
    if to:
        Path(to).mkdir(parents=True, exist_ok=True)
    for name, text in rendered("home", machines).items():
        if to:
            (Path(to) / name).write_text(text)
            say(str(Path(to) / name))
        else:
            say(text)
    return 0
