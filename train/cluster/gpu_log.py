"""The GPUs of this node as nvidia-smi sees them: now, for agent.json, and over time in gpu.jsonl, for the report."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from pathlib import Path

from train.nvidia_smi import NotInstalled, Silent, table

FIELDS = (
    "index name temperature.gpu utilization.gpu power.draw memory.used memory.total clocks_throttle_reasons.active"
).split()


class GpuReadings:
    """The GPUs, read every few seconds in a thread of its own: with a broken GPU nvidia-smi may never return."""

    def __init__(self, history: Path, node: str, every_s: float = 5.0) -> None:
        self.now: list[dict[str, str]] = []
        self.history, self.node = history, node
        threading.Thread(target=self._read_for_ever, args=(every_s,), daemon=True).start()

    def _read_for_ever(self, every_s: float) -> None:
        while True:
            try:
                self.now = read_gpus()
                self._keep()
            except NotInstalled:
                return
            except Silent:
                self.now = []
            time.sleep(every_s)

    def _keep(self) -> None:
        if not self.now:
            return
        facts = {"event": "gpu", "time": round(time.time(), 1), "node": self.node, **summary(self.now)}
        with contextlib.suppress(OSError), self.history.open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")


def read_gpus() -> list[dict[str, str]]:
    return table("gpu", FIELDS, timeout_s=10)


def summary(gpus: list[dict[str, str]]) -> dict[str, float | None]:
    """All GPUs of the node in one line: the hottest, and the sum of power and memory; None where none is known."""
    celsius, watts, used = (_numbers(gpus, name) for name in ("temperature.gpu", "power.draw", "memory.used"))
    power, memory = round(sum(watts), 1) if watts else None, sum(used) if used else None
    return {"celsius": max(celsius, default=None), "watts": power, "used_mb": memory}


def _numbers(gpus: list[dict[str, str]], name: str) -> list[float]:
    """The known values of one field; laptop GPUs answer `[N/A]` to some questions."""
    numbers = []
    for gpu in gpus:
        with contextlib.suppress(ValueError):
            numbers.append(float(gpu[name]))
    return numbers
