"""Training on the lab's hosts without an agent: torchrun with static ranks, started from outside, its event log read
from the hosts' disks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count as counting
from pathlib import Path
from typing import Any

from lab import base, cgroups, shaping
from lab.host import Host
from lab.lab import Lab
from lab.layer import ENV
from tests.support import pace
from tests.support.cluster import REPOSITORY, hosts
from train.runlog.tail import read

AT = Path("/home/user/motley")
SETTINGS = {"model": "tiny", "dataset": str(AT / "data"), "home": str(AT / "runs"), "proof_every": 1000}
PORT = 29500
RUNS = counting()


@contextlib.contextmanager
def lab_for_training(name: str, profile: str = "trio") -> Iterator[Lab]:
    """Hosts with the training environment, this repository's train/ and examples/, the tiny model and prepared rows."""
    with hosts(name, profile, base.default_suite(), ["train"]) as lab:
        bring(lab)
        links(lab.hosts)
        yield lab


def bring(lab: Lab, row_length: int = 256) -> None:
    for host in lab.hosts:
        folder = on_disk(host)
        folder.mkdir(parents=True)
        for part in ("train", "tests/bench", "examples"):
            shutil.copytree(REPOSITORY / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    first, *others = lab.hosts
    prepare = f"-m train prepare --dataset stdlib-qa --model tiny --max-seq-length {row_length} --out {AT}/data"
    first.run(*environment(first), f"{ENV}/bin/python", *prepare.split())
    for host in others:
        for part in ("cache", "data"):
            shutil.copytree(on_disk(first) / part, on_disk(host) / part)


def on_disk(host: Host) -> Path:
    return host.disk.root / AT.relative_to("/")


def environment(host: Host) -> list[str]:
    settings = {
        "PYTHONPATH": AT,
        "PYTHONDONTWRITEBYTECODE": 1,
        "MOTLEY_CACHE": AT / "cache",
        "MOTLEY_NODE": host.name,
        "OMP_NUM_THREADS": 1,
        "HF_HUB_OFFLINE": 1,
        "HOME": "/root",
        "GLOO_SOCKET_IFNAME": host.spec.nics[0],
    }
    return ["env", *(f"{name}={value}" for name, value in settings.items())]


class Training:
    """One run over some hosts."""

    def __init__(
        self, run: str, hosts: list[Host], what: list[str], *, processes: Mapping[str, int] | None = None
    ) -> None:
        self.run, self.hosts = run, hosts
        self.folder = on_disk(hosts[0]).parent / f"out-{run}"
        self.folder.mkdir()
        self.started = []
        port = PORT + next(RUNS)  # some may run at the same time
        for rank, host in enumerate(hosts):
            words = ["-m", "torch.distributed.run", f"--nnodes={len(hosts)}", f"--node-rank={rank}"]
            words += [f"--nproc-per-node={(processes or {}).get(host.name, 1)}", f"--master-port={port}"]
            words += [f"--master-addr={hosts[0].spec.installed_address}", *what]
            out = (self.folder / host.name).open("w")
            command = host.inside(*environment(host), f"{ENV}/bin/python", *words)
            self.started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out))

    @property
    def event_log(self) -> Path:
        return on_disk(self.hosts[0]) / "runs/logs/runs" / self.run / "events.jsonl"

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in read(self.event_log) if event["event"] == kind]

    def wait_for(self, condition: Callable[[list[dict[str, Any]]], bool], what: str) -> int:
        """Until the steps so far fulfil it; returns how many there are."""

        def fulfilled() -> list[dict[str, Any]]:
            steps = self.events("step")
            if condition(steps):
                return steps
            assert not any(process.poll() for process in self.started), self.said()
            return []

        return len(pace.until(fulfilled, pace.HANG_S, lambda: f"{self.run}: {what}\n{self.said()}", every_s=0.2))

    def wait_for_step(self, step: int) -> int:
        return self.wait_for(lambda steps: len(steps) >= step, f"step {step}")

    def end(self) -> None:
        codes = [pace.ended(process, trouble=self.said) for process in self.started]
        assert codes == [0] * len(codes), self.said()

    def send(self, number: signal.Signals) -> None:
        """To its processes, which all have the name of its settings among their words."""
        for pid in (pid for host in self.hosts for pid in cgroups.processes(f"{host.cgroup}/lab")):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                if f"/{self.run}.yaml" in Path(f"/proc/{pid}/cmdline").read_text():
                    os.kill(pid, number)

    def stop(self) -> None:
        """At once: what it measured is known."""
        for host in self.hosts:
            for pid in cgroups.processes(f"{host.cgroup}/lab"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self.started:
            process.wait()

    def said(self) -> str:
        return "\n".join(file.read_text()[-2000:] for file in sorted(self.folder.iterdir()))


def train(
    run: str,
    hosts: list[Host],
    *,
    processes: Mapping[str, int] | None = None,
    program: Sequence[str] = ("train",),
    **settings: Any,
) -> Training:
    """`program`: the module that trains, with words before those of a run."""
    for host in hosts:  # as flags some of them would be taken for torchrun's own
        (on_disk(host) / f"{run}.yaml").write_text(json.dumps(SETTINGS | {"run": run} | settings))
    return Training(run, hosts, ["-m", *program, "run", f"--config={AT}/{run}.yaml"], processes=processes)


def quotas(hosts: list[Host], *, on: bool, percent: Mapping[str, float] | None = None) -> None:
    """The profile's CPU shares or others; a start-up needs all there is."""
    for host in hosts:
        cgroups.quota(host.cgroup, (percent or {}).get(host.name, host.spec.cpu_percent) if on else None)


def links(hosts: list[Host], mbit: float | None = None) -> None:
    """All at this speed, or at the profile's."""
    for host in hosts:
        shaping.set_rate(host.cable, mbit or host.spec.rate_mbit)
