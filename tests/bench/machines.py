"""Machines of pretended speeds, for the benchmarks of answers and of pieces: processes of this machine, a node each, in
which each token, request or trial takes so long, whatever is made beside it (tests/train/broken.py)."""

from __future__ import annotations

import os
import secrets
import subprocess
from pathlib import Path
from typing import Any

from tests.bench.trainer import PYTHON
from tests.support.cluster import REPOSITORY
from train.runlog.tail import read

SPEEDS = (4, 2, 1)
FIRST_PORT, PORTS = 30_000, 2_700


class Machines:
    """One run of some processes, with the given speeds."""

    def __init__(
        self, home: Path, speeds: tuple[int, ...], options: dict[str, Any], pretended: str = "pretended_speed"
    ) -> None:
        self.home, self.processes = home, list[subprocess.Popen[bytes]]()
        port = FIRST_PORT + secrets.randbelow(PORTS)
        words = [f"--{name.replace('_', '-')}={value}" for name, value in (options | {"run": "run"}).items()]
        for rank, speed in enumerate(speeds):
            own = home / f"node-{rank}"
            own.mkdir(parents=True)
            env = os.environ | {
                "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(REPOSITORY), "LOCAL_RANK": "0",
                "MOTLEY_NODE": f"node-{rank}", "RANK": str(rank), "WORLD_SIZE": str(len(speeds)),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
            }  # fmt: skip
            command = [str(PYTHON), "tests/train/broken.py", f"{pretended}={speed}", "run", *words, f"--home={own}"]
            with (own / "out.txt").open("w") as out:
                self.processes.append(subprocess.Popen(command, cwd=REPOSITORY, env=env, stdout=out, stderr=out))

    def said(self, rank: int = 0) -> str:
        return (self.home / f"node-{rank}/out.txt").read_text()[-3000:]

    def events(self) -> list[dict[str, Any]]:
        log = self.home / "node-0/logs/runs/run/events.jsonl"
        return read(log) if log.exists() else []

    def send(self, number: int) -> None:
        for process in self.processes:
            process.send_signal(number)
