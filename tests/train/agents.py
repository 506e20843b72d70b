"""Agents on loopback addresses, each a node with its own home: what membership does without a lab."""

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import IO

from tests.support import pace
from tests.support.pids import is_alive
from tests.train import cluster
from train.cluster.attach_to_agent import NAME
from train.cluster.forkserver import Worker
from train.runlog.state import history
from train.runlog.tail import Tail, read

ENDLESS = {"model": "tiny", "max_steps": 100000, "rows_per_step": 4, "lora_r": 4, "save_every": 20, "sync": "flat"}
"""A run that continues until somebody ends it."""


class Agents:
    """A cluster of agents. Names are node-0, node-1 …; the first is the head. Cold, each is `python -m train agent`, as
    on a node; else a fork (warm_agent.py), there at once."""

    def __init__(
        self, home: Path, options: dict, size: int = 3, processes: dict[int, int] | None = None, *, cold: bool = False
    ) -> None:
        self.home, self.options, self.size, self.cold = home, options, size, cold
        self.names = [f"node-{i}" for i in range(size)]
        self.processes = processes or {}
        self.running: dict[str, subprocess.Popen | Worker] = {}
        self.token, self.port = secrets.token_hex(8), _ports()
        self.more: dict = {}
        """Of cluster.yaml."""
        self.odd: dict[str, dict] = {}
        """Settings of one node alone."""
        self.net = 1 + secrets.randbelow(250)

    def folder(self, name: str) -> Path:
        return self.home / name

    def log(self, name: str) -> Path:
        return self.folder(name) / "logs/runs/run"

    def write(self, name: str, **changes) -> list[str]:
        folder = self.folder(name)
        folder.mkdir(parents=True, exist_ok=True)
        nodes = [
            {"name": other, "address": f"127.0.{self.net}.{i + 1}", "processes": self.processes.get(i, 1)}
            for i, other in enumerate(self.names)
        ]
        facts = {"run": "run", "node": name, "nodes": nodes, "interface": "lo"}
        facts |= {"presence_port": self.port, "group_ports": [self.port + 1, self.port + 60]} | self.more | changes
        (folder / "cluster.yaml").write_text(json.dumps(facts))
        (folder / "secret.json").write_text(json.dumps({"token": self.token}))
        settings = self.options | {"home": str(folder)} | self.odd.get(name, {})
        (folder / "training.yaml").write_text(json.dumps(settings, default=str))
        return ["--cluster", str(folder / "cluster.yaml"), "--config", str(folder / "training.yaml")]

    def start(
        self, *names: str, program: str = "-m train", wait_s: float = 20, out_to: str = "", altered: str = ""
    ) -> None:
        for name in names or self.names:
            words = [*self.write(name), "--wait-s", str(wait_s), "--program", program]
            agent = ["tests/train/broken.py", altered] if altered else ["-m", "train"]
            with Path(out_to or self.folder(name) / "out.txt").open("a") as out:
                self.running[name] = self._started([*agent, "agent", *words], cluster.environment(name), out)
            cluster.STARTED.append(self.running[name])

    def _started(self, words: list[str], env: dict[str, str], out: IO[str]) -> subprocess.Popen | Worker:
        if self.cold:
            return subprocess.Popen([sys.executable, *words], env=env, cwd=cluster.ROOT, stdout=out, stderr=out)
        born = cluster.warm().start(["tests/train/warm_agent.py", *words], env, out.fileno())
        assert born, "the warm process is gone"
        pace.until(lambda: born.poll() is not None or born.pid, pace.HANG_S, every_s=0.002)
        return born

    def signal(self, name: str, number: int) -> None:
        """The agent alone."""
        process = self.running[name]
        if process.poll() is None:
            os.kill(process.pid, number)

    def kill(self, *names: str) -> None:
        for name in names or tuple(self.running):
            self.signal(name, SIGKILL)
            self.running.pop(name).wait()

    def stop(self, *names: str, within_s: float = 5.0, number: int = SIGTERM) -> list[int]:
        """All must be gone in time."""
        leaving = names or tuple(self.running)
        for name in leaving:
            self.signal(name, number)
        chosen = [self.running.pop(name) for name in leaving]
        pace.until(lambda: all(process.poll() is not None for process in chosen), within_s, self._tails)
        return [process.returncode for process in chosen]

    def workers(self, name: str) -> list[int]:
        """Those that live: one that has ended stays listed until its agent's next look."""
        named = [pid for pid in self.children(name) if Path(f"/proc/{pid}/comm").read_text().strip() == NAME]
        return [pid for pid in named if is_alive(pid)]

    def children(self, name: str) -> list[int]:
        pid = self.running[name].pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def said(self, name: str) -> str:
        return (self.folder(name) / "out.txt").read_text()

    def now(self, name: str) -> dict:
        file = self.log(name) / "agent.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def members(self, name: str, kind: str = "") -> list[dict]:
        return [event for event in read(self.log(name) / "members.jsonl") if kind in ("", event["event"])]

    def events(self, name: str, kind: str = "") -> list[dict]:
        return [event for event in read(self.log(name) / "events.jsonl") if kind in ("", event["event"])]

    def checkpoints(self, name: str) -> Path:
        return self.folder(name) / "models/checkpoints/run"

    def result(self, name: str) -> Path:
        return self.folder(name) / "results/run/adapter"

    def steps(self, name: str) -> list[dict]:
        return history(self.events(name))

    def losses(self, *names: str) -> list[float]:
        """Of a run whose group changed: each log is in order, and together they have each step. Who was asked to leave
        the group a moment too early has a step from another, and not in its own log."""
        found: dict[int, float] = {}
        for name in names:
            steps = self.steps(name)
            numbers = [step["step"] for step in steps]
            assert numbers == sorted({*numbers}), f"{name}: {numbers}"
            found |= {step["step"]: step["loss"] for step in steps}
        assert sorted(found) == list(range(1, len(found) + 1)), sorted(found)
        return [found[step] for step in sorted(found)]

    def last_step(self, name: str) -> dict:
        """From the end of the log: cheap enough to be asked all the time."""
        events = Tail(self.log(name) / "events.jsonl", last_bytes=1 << 14).events()
        steps = [event for event in events if event["event"] == "step"]
        return steps[-1] if steps else {"step": 0, "nodes": {}, "time": 0.0}

    def together(self, *names: str, since: float = 0.0, within_s: float = 60.0, step: int = 0) -> float:
        """Seconds until exactly these train a step that began after `since` (now, if none is given)."""
        began = since or time.time()
        wanted = {f"{n}:{i}" if self._many(n) > 1 else n for n in names for i in range(self._many(n))}

        def trained() -> bool:
            last = [self.last_step(name) for name in names]
            return all(e["time"] > began and set(e["nodes"]) == wanted and e["step"] > step for e in last)

        self.wait(trained, within_s, f"{names} do not train together")
        return time.time() - began

    def _many(self, name: str) -> int:
        return self.processes.get(self.names.index(name), 1)

    def wait(self, condition: Callable[[], object], within_s: float, trouble: str) -> None:
        pace.until(condition, within_s, lambda: f"{trouble}\n{self._tails()}")

    def _tails(self) -> str:
        told = [name for name in self.names if (self.folder(name) / "out.txt").exists()]
        return "\n".join(f"== {name}\n{self.said(name)[-1500:]}" for name in told)

    def ended(self, within_s: float = pace.HANG_S) -> list[int]:
        return [pace.ended(process, within_s, self._tails) for process in self.running.values()]


def _ports() -> int:
    """The heartbeat's; up to 60 more are for groups. Free ones of others are elsewhere (`cluster.free_port`)."""
    return 20_000 + 64 * secrets.randbelow(140)
