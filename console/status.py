"""How the nodes and their runs are: what runs where and how far, and which runs there were.

python -m console status|runs [--inventory FOLDER]
"""

from __future__ import annotations

import functools
import json
import time
from collections import Counter
from typing import Any

from console.follow import base, clock, first, rows_of
from console.infra.choose import from_inventory
from console.infra.node import ask_all
from console.inventory.read import Inventory

say = functools.partial(print, flush=True)
LITTLE_BYTES = 500e6
"""With less free room a node's checkpoints may soon be missing."""


def status(inventory: Inventory, *, as_json: bool = False) -> int:
    nodes = from_inventory(inventory)
    answers, silent = ask_all(nodes, lambda node: node.status())
    names = [node.name for node in nodes]
    if as_json:
        print(json.dumps({"nodes": answers, "silent": silent}))
    else:
        for line in status_lines(names, answers, silent):
            say(line)
    return 0 if answers else 1


def status_lines(names: list[str], answers: dict[str, Any], silent: dict[str, str]) -> list[str]:
    """What is running, and where; or which run was the last."""
    if not answers:
        return ["no node answers:", *(f"  {name}  {silent[name]}" for name in names)]
    running = {name: look for name, look in answers.items() if look["on"]}
    lines = [run_line(run, [look for look in running.values() if look["run"] == run]) for run in runs_of(running)]
    width = max(map(len, names))
    newest = newest_step(running)
    for name in names:
        words = node_words(name, answers[name], newest) if name in answers else off_words(name, silent[name], running)
        lines.append(f"  {name:<{width}}  {words}")
    if not running:
        lines[:0] = [f"no run is running{last_run(answers)}"]
    elif happened := last_happened(running):
        lines.append(f"  last: {happened}")
    return lines


def runs_of(running: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(look["run"] for look in running.values()))


def newest_step(looks: dict[str, Any]) -> dict[str, Any]:
    steps = [look["step"] for look in looks.values() if look["step"]]
    return max(steps, key=lambda step: float(step["time"]), default={})


def run_line(run: str, looks: list[dict[str, Any]]) -> str:
    step = newest_step({str(i): look for i, look in enumerate(looks)})
    states = Counter(str(look["now"].get("state") or "starting") for look in looks)
    state = states.most_common(1)[0][0]
    if not step:
        reason = next((look["now"].get("reason") for look in looks if look["now"].get("reason")), "")
        return f"run {run}  {state}{f': {first(str(reason))}' if reason else ''}"
    total = max((int(look["start"].get("total_steps", 0)) for look in looks), default=0)
    step_s = max(1e-6, float(step["step_s"]))
    rows = sum(rows_of(step).values())
    words = [f"run {run}", f"step {step['step']}/{total}", f"loss {step['loss']:.4f}"]
    words += [f"{rows / step_s:.1f} rows/s", f"{step['tokens'] / step_s:.0f} tok/s"]
    words.append(f"eta {clock((total - step['step']) * step_s)}" if state == "training" else state)
    return "  ".join(words)


def off_words(name: str, silent: str, running: dict[str, Any]) -> str:
    """Since when the others train without it."""
    lost = [e for look in running.values() for e in look["members"] if e["event"] == "lost" and name in e["nodes"]]
    return f"{silent}; lost at step {max(lost, key=lambda e: float(e['time']))['step']}" if lost else silent


def node_words(name: str, look: dict[str, Any], newest: dict[str, Any]) -> str:
    if not look["on"]:
        free = look["free_bytes"] / 1e9
        return f"no run here · {free:.0f} GB free{gpus(look['gpus'])}"
    view = look["now"]
    words = [str(view.get("state") or "starting")]
    if count := rows_of(newest).get(name):
        words.append(f"{count} rows")
        used = max(float(did.get("gpu_gb") or 0) for key, did in newest["nodes"].items() if base(key) == name)
        words += [f"{used:.1f} GB on the GPU"] if used else []
    elif view.get("reason"):
        words.append(first(str(view["reason"])))
    words.append(f"checkpoint {look['checkpoint']}")
    if look["free_bytes"] < LITTLE_BYTES:
        words.append(f"only {look['free_bytes'] / 1e6:.0f} MB free")
    if look["how"] != "unit":
        words.append({"by hand": "started by hand", "detached": "without a unit"}.get(look["how"], look["how"]))
    return "  ".join(words) + gpus(view.get("gpus") or [])


def gpus(found: list[dict[str, str]]) -> str:
    shown = []
    for gpu in found:
        used, whole = (float(gpu.get(f"memory.{part}") or 0) / 1024 for part in ("used", "total"))
        heat, load, power = (gpu.get(f"{key}", "?") for key in ("temperature.gpu", "utilization.gpu", "power.draw"))
        shown.append(f"  {gpu.get('name', 'GPU')}  {load} %  {heat} °C  {power} W  {used:.1f}/{whole:.0f} GB")
    return "".join(shown)


def last_run(answers: dict[str, Any]) -> str:
    ran = [look for look in answers.values() if look["run"]]
    if not ran:
        return " and none was; start one: make launch MODEL=…"
    look = max(ran, key=lambda look: float((look["step"] or {}).get("time", 0)))
    ends = [event for event in look["events"] if event["event"] in ("done", "failed", "stopped")]
    end = max(ends, key=lambda event: float(event["time"]), default=None)
    step = look["step"].get("step", 0) if look["step"] else 0
    how = {"done": "done", "failed": f"failed: {first(end['message'])}" if end and "message" in end else "failed"}
    word = how.get(end["event"], "stopped") if end and end["step"] >= step else "stopped"
    more = "" if word == "done" else f" · resume it: make launch RESUME={look['run']}"
    return f"; the last was {look['run']}: {word} at step {step}{more}"


def last_happened(running: dict[str, Any]) -> str:
    events = [event for look in running.values() for event in look["members"] if event["event"] not in ("up", "plan")]
    if not events:
        return ""
    event = max(events, key=lambda event: float(event["time"]))
    when = time.strftime("%H:%M:%S", time.localtime(float(event["time"])))
    return f"{when}  {event['event']}  {first(str(event.get('reason', '')))}"


def runs(inventory: Inventory) -> int:
    nodes = from_inventory(inventory)
    answers, silent = ask_all(nodes, lambda node: node.runs())
    for line in run_lines(answers, silent):
        say(line)
    return 0 if answers else 1


def gathered(answers: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Name → how far it is, and where; of several nodes' answers the furthest."""
    found: dict[str, dict[str, Any]] = {}
    for node, answer in answers.items():
        for name, facts in answer["runs"].items():
            known = found.setdefault(name, {"nodes": [], "bytes": 0, "done": False, "on": False, "step": -1})
            known["nodes"].append(node)
            known["on"] = known["on"] or answer["on"] == name
            known["done"] = known["done"] or facts["done"]
            known["bytes"] += facts["bytes"]
            if facts["step"] > known["step"]:
                known |= {key: facts[key] for key in ("step", "steps", "loss", "time", "model")}
    return dict(sorted(found.items(), key=lambda item: float(item[1]["time"]), reverse=True))


def run_lines(answers: dict[str, Any], silent: dict[str, str]) -> list[str]:
    found = gathered(answers)
    width = max([3, *map(len, found)])
    lines = (
        [f"{'run':<{width}}  {'step':>11}  {'loss':>7}  {'state':<8}  {'when':<16}  {'disk':>8}  on"] if found else []
    )
    for name, facts in found.items():
        state = "running" if facts["on"] else "done" if facts["done"] else "stopped"
        loss = f"{facts['loss']:.4f}" if facts["loss"] is not None else "–"
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(float(facts["time"])))
        steps = f"{facts['step']}/{facts['steps'] or '?'}"
        where = ", ".join(facts["nodes"])
        size = f"{facts['bytes'] / 1e6:.0f} MB"
        lines.append(f"{name:<{width}}  {steps:>11}  {loss:>7}  {state:<8}  {when:<16}  {size:>8}  {where}")
    lines += [] if found else ["no node that answers has a run"]
    return lines + [f"{name}  {reason}" for name, reason in silent.items()]
