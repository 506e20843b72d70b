"""A run that seems to be running: nodes that are folders of this machine, event logs that a test lets grow, processes
that stand for the agents. What reads it (status, follow, the live page) is real."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.support import ROOT
from tests.support.run_files import held_out, member, start, step

NODES = ("gpu-master", "gpu-worker-1", "gpu-worker-2")
STEPS = 1990
ROWS = {"gpu-master": 14, "gpu-worker-1": 7, "gpu-worker-2": 3}


class LiveRun:
    def __init__(self, folder: Path, run: str = "qa", total: int = 2000, began: float = 0.0, **known: Any) -> None:
        self.folder, self.run, self.total, self.step = folder, run, total, 0
        self.inventory = folder / "inventory"
        shutil.copytree(ROOT / "inventory/loopback/group_vars", self.inventory / "group_vars")
        hosts = {
            name: {"motley_address": f"127.0.0.{11 + i}", "motley_home": str(folder / name)}
            for i, name in enumerate(NODES)
        }
        (self.inventory / "hosts.yml").write_text(
            json.dumps({"cluster": {"vars": {"motley_state": str(folder / "state")}, "hosts": hosts}})
        )
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self.began = began or time.time() - 3 * total
        for name in NODES:
            (folder / name / "config").mkdir(parents=True)
            (folder / name / "config/cluster_config.yaml").write_text(f"run: {json.dumps(run)}\n")
            (folder / name / "logs/runs" / run).mkdir(parents=True)
        self.write("events.jsonl", start(self.began, 0, [*NODES], total) | {"run": run, **known})

    def __enter__(self) -> LiveRun:
        for name in NODES:
            self.agents[name] = subprocess.Popen(
                [sys.executable, "-c", "import time; time.sleep(3600)", "train", "agent"],
                env=os.environ | {"MOTLEY_HOME": str((self.folder / name).resolve())},
            )
        self.says("training")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.agents.values():
            process.kill()
            process.wait()

    def log(self, node: str, name: str) -> Path:
        return self.folder / node / "logs/runs" / self.run / name

    def write(self, name: str, *events: dict[str, Any], nodes: tuple[str, ...] = NODES) -> None:
        text = "".join(json.dumps(event) + "\n" for event in events)
        for node in nodes:
            with self.log(node, name).open("a") as file:
                file.write(text)

    def says(self, state: str, **more: Any) -> None:
        gpus = [{"name": "RTX 4070", "temperature.gpu": "64", "power.draw": "180.0", "memory.used": "7000"}]
        facts = {"state": state, "time": time.time(), "run": self.run, "epoch": 1, "gpus": gpus, "peers": {}}
        for node in NODES:
            self.log(node, "agent.json").write_text(json.dumps(facts | {"node": node} | more))

    def trains(self, count: int = 1, nodes: tuple[str, ...] = NODES) -> None:
        events = []
        for _ in range(count):
            self.step += 1
            when = time.time() if count == 1 else self.began + 2.9 * self.step
            rows = {name: ROWS[name] for name in nodes}
            events.append(step(when, self.step, rows, 1 + 3 / (1 + self.step / 50) + 0.05 * (self.step % 7)))
            if self.step % 100 == 0:
                events.append(held_out(when, self.step, 1.1 + 3 / (1 + self.step / 50)))
        self.write("events.jsonl", *events)

    def happens(self, kind: str, names: list[str], reason: str, node: str = "gpu-master", **more: Any) -> None:
        self.write("members.jsonl", member(kind, time.time(), node, names, reason, **more) | {"step": self.step})


class Board:
    """./motley dashboard as a process."""

    def __init__(self, run: LiveRun, port: int = 0) -> None:
        self.run = run
        words = ["dashboard", "--inventory", str(run.inventory), "--port", str(port)]
        command = [sys.executable, "-m", "console", *words]
        out = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout
        self.address = self.process.stdout.readline().strip()
        assert "?token=" in self.address, self.address
        self.base, _, self.token = self.address.partition("/?token=")
        host, _, self.folder = self.base.removeprefix("http://").partition("/")
        self.port = int(host.rpartition(":")[2])

    def asks(self, path: str, method: str = "GET", body: str = "", **headers: str) -> http.client.HTTPResponse:
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        given = {"Host": f"127.0.0.1:{self.port}", "Cookie": f"motley={self.token}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in given.items() if value}
        link.request(method, f"/{self.folder}{path}", body or None, sent)
        return link.getresponse()

    def close(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.wait(20)
        assert self.process.stdout
        self.process.stdout.close()
