"""Somebody with an account on a Slurm that is not theirs (lab/slurm.py), and what can be seen of their runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import network, slurm
from lab.host import SHARED, Host
from lab.profile import CLUSTER_HOME, USER
from tests.support import cluster as clusters
from tests.support import pace, typed
from tests.support.bootstrap import Person
from tests.support.cluster import REPOSITORY, Cluster
from tests.support.watching import Watching

HOME = f"{SHARED}/{USER}/ai-cluster"
ALL_CARDS = "slurm_options=--nodes=3 --gpus=4"
# What tests/train/reference.py, one plain process, trains with.
AS_THE_TRUTH = (
    *("model=tiny", "rows_per_step=8", "max_seq_length=64", "lora_r=8", "lora_alpha=16", "learning_rate=2e-3"),
    *("warmup_steps=5", "grad_clip=0.3", "wire=fp32", "sync=flat"),
)


@dataclass(frozen=True)
class Account:
    person: Person
    begun: list[Watching] = field(default_factory=list)

    @property
    def head(self) -> Host:
        return self.person.cluster.hosts[0]

    @property
    def shared(self) -> Path:
        """Motley's folder there, as seen from outside."""
        return self.person.cluster.lab.place.shared / USER / "ai-cluster"

    def slurm(self, *words: str) -> str:
        return slurm.slurm(self.head, *words)

    def launches(self, run: str, *variables: str, options: str = ALL_CARDS) -> Watching:
        asked = [*AS_THE_TRUTH, f"run={run}", options, *variables]
        self.begun.append(Watching(self.person, "launch", *typed.variables(*asked)))
        return self.begun[-1]

    def plays(self, run: str, *variables: str, options: str) -> Watching:
        """The same as ansible-playbook is typed."""
        person, controller = self.person, self.person.cluster.lab.place.controller
        playbook = Path(sys.executable).with_name("ansible-playbook")
        asked = [*AS_THE_TRUTH, f"run={run}", json.dumps({"slurm_options": options}), *variables]
        words = [playbook, "-i", person.inventory, "launch.yml", *typed.variables(*asked)]
        self.begun.append(Watching.program(person, ["ip", "netns", "exec", controller, *map(str, words)]))
        return self.begun[-1]

    def job(self, run: str) -> str:
        return str(json.loads((self.shared / "jobs" / run / "job.json").read_text())["job"])

    def about(self, run: str) -> str:
        return self.slurm("scontrol", "show", "job", self.job(run))

    def restarts(self, run: str) -> int:
        found = re.search(r"Restarts=(\d+)", self.about(run))
        assert found
        return int(found[1])

    def saved(self, run: str) -> list[list[int]]:
        """Steps of the checkpoints in each place."""
        folders = sorted((self.shared / "jobs" / run).glob("place-*"))
        found = [[*(folder / "models/checkpoints" / run).glob("step-*")] for folder in folders]
        return [sorted(int(path.name[5:]) for path in steps) for steps in found]

    def events(self, run: str, kind: str) -> list[dict[str, Any]]:
        lines = (self.shared / f"jobs/{run}/place-0/logs/runs/{run}/events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def cable(self, name: str, *, plugged: bool) -> None:
        network.set_cable(self.person.cluster[name].cable, plugged=plugged)

    def idle(self) -> None:
        """Until the queue is empty and every node is there again."""
        count = len(self.person.cluster.hosts)
        listed = ["sinfo", "-hN", "-t", "idle", "-o", "%N"]
        pace.until(lambda: not self.slurm("squeue", "-h").strip(), 120, lambda: self.slurm("squeue"))
        pace.until(lambda: len(self.slurm(*listed).split()) == count, 120, lambda: self.slurm("sinfo", "-N"))

    def proof(self, run: str) -> dict[str, Any]:
        """Which steps and rows count, and how far the losses are from one plain process."""
        tests = self.shared.parent / "proof/tests"
        for part in ("train", "support"):
            shutil.copytree(REPOSITORY / "tests" / part, tests / part, dirs_exist_ok=True)
        rows = json.loads((self.shared / f"jobs/{run}/logs/runs/{run}/launch.json").read_text())["rows"]
        places = sorted(path.name for path in (self.shared / "jobs" / run).glob("place-*"))
        logs = [f"{HOME}/jobs/{run}/{place}/logs/runs/{run}/events.jsonl" for place in places]
        words = [
            f"{CLUSTER_HOME}/env/bin/python",
            "-m",
            "tests.train.proof_of_run",
            f"{HOME}/data/processed/{rows}",
            "8",
        ]
        shell = f'cd {SHARED}/{USER}/proof && PYTHONPATH={HOME}/code OMP_NUM_THREADS=1 exec "$@"'
        said = self.head.run("runuser", "-u", USER, "--", "sh", "-c", shell, "-", *words, "8", *logs)
        return dict(json.loads(said.splitlines()[-1]))


def opened(folder: Path, *layers: str, suite: str = "bookworm", own: dict[str, Any] | None = None) -> Iterator[Account]:
    """`own`: further variables of its inventory."""
    with clusters.hosts(f"s{os.getpid()}", "trio", suite, layers) as lab:
        slurm.start(lab)
        person = Person(Cluster(lab, folder), folder)
        person.inventory.mkdir(parents=True)
        (person.inventory / "group_vars").symlink_to(REPOSITORY / "inventory/slurm/group_vars")
        described = slurm.inventory(lab, person.state)
        described["cluster"]["vars"] |= own or {}
        (person.inventory / "hosts.yml").write_text(json.dumps(described))
        account = Account(person)
        try:
            yield account
        finally:
            for watching in account.begun:  # of a test that failed
                watching.kill()


def has_environment(account: Account) -> None:
    """As a first launch brings it; here it is a layer of the lab, on each host alike."""
    link = f"mkdir -p {HOME} && ln -sfn {CLUSTER_HOME}/env {HOME}/env"
    account.slurm("sh", "-c", link)
