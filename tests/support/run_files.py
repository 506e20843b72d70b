"""A run as its nodes wrote it, made up: for the report and whatever else reads one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]
HEAD, WORKER = "gpu-master", "gpu-worker-1"


def start(time: float, step: int, nodes: list[str], total: int = 12) -> Event:
    facts = {"run": "qa", "total_steps": total, "rows_per_step": 8, "weights": 1, "decisions": {"wire": "fp32"}}
    facts |= {"nodes": nodes, "identity": {}, "reasons": ["as set"]}
    return {"event": "start", "time": time, "step": step, **facts}


def step(time: float, number: int, rows: dict[str, int], loss: float | None = None, gpu_gb: float = 2.0) -> Event:
    nodes = {
        n: {"rows": r, "compute_s": r / 4, "wait_s": 0.1, "gpu_gb": gpu_gb, "tokens_per_s": 9} for n, r in rows.items()
    }
    facts = {"tokens": 800, "targets": 300, "step_s": 2.0, "sync_s": 0.1, "sync": "flat", "lr": 1e-4}
    return {"event": "step", "time": time, "step": number, "loss": loss or 4 / number, "nodes": nodes, **facts}


def done(time: float, number: int, loss: float | None = 0.3) -> Event:
    return {"event": "done", "time": time, "step": number, "loss": loss, "seconds": 30}


def held_out(time: float, number: int, loss: float) -> Event:
    return {"event": "eval", "time": time, "step": number, "loss": loss, "targets": 9, "best": True}


def member(kind: str, time: float, node: str, about: list[str], reason: str, **more: Any) -> Event:
    facts = {"epoch": 1, "step": 6, "host": HEAD, "nodes": about, "reason": reason}
    return {"event": kind, "time": time, "node": node, **facts, **more}


def gpu(time: float, node: str, watts: float = 360, celsius: float = 60) -> Event:
    return {"event": "gpu", "time": time, "node": node, "celsius": celsius, "watts": watts}


def kept(run: Path, events: list[Event], launch: dict[str, Any], nodes: Sequence[str] = (HEAD,)) -> Path:
    """A run's folder, in which each of its nodes has all its events."""
    for node in nodes:
        write(run / "nodes" / node, "events.jsonl", events)
        (run / "nodes" / node / "launch.json").write_text(json.dumps({"run": run.name, **launch}))
    return run


def write(folder: Path, name: str, events: list[Event], torn: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(event) + "\n" for event in events) + torn)
