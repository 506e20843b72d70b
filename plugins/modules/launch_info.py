#!/usr/bin/python
# MIT License, see LICENSE
"""What a launch must know of a node: memory, cards, disk, the way to its peers, its runs, and whether one is on."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.motley import nvidia_smi
from ansible.module_utils.motley.files import read

DOCUMENTATION = r"""
module: launch_info
short_description: A node's facts for the plan of a run; changes nothing
description:
  - Reads memory, cards, disk, the route to the peers and the known runs; changes nothing.
options:
  home: {type: path, required: true, description: The cluster's folder on the node}
  address: {type: str, required: true, description: The node's own address}
  peers: {type: dict, default: {}, description: "The other nodes: name to address"}
  port: {type: int, default: 29400, description: Where the agents of a run talk to each other}
"""
RETURN = r"""
look: {type: dict, returned: always, description: The facts by name}
"""
AGENT_SILENT_S = 15.0
TAIL_BYTES = 1 << 18
MEASURED_RUNS, MEASURED_STEPS = 8, 20


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "address": {"type": "str", "required": True},
            "peers": {"type": "dict", "default": {}},
            "port": {"type": "int", "default": 29400},
        },
        supports_check_mode=True,
    )
    wish = module.params
    home = Path(wish["home"])
    runs = known_runs(home)
    look = {
        "home": str(home),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "cards": cards(),
        "free_bytes": free_bytes(home),
        "way": way(wish["address"], wish["peers"]),
        "run_on": run_on(home),
        "port_taken": wish["port"] if taken(wish["port"]) else 0,
        "runs": runs,
        "measured": measured(home, runs),
    }
    module.exit_json(changed=False, look=look)


def cards() -> list[dict[str, Any]]:
    """One entry a card that the driver shows."""
    try:
        rows = nvidia_smi.table("gpu", ["name", "memory.total", "memory.used", "compute_cap"], timeout_s=10)
    except nvidia_smi.Silent:
        return []
    return [
        {
            "name": row["name"],
            "bytes": int(float(row["memory.total"])) << 20,
            "used": int(float(row["memory.used"])) << 20,
            "capability": row["compute_cap"],
        }
        for row in rows
    ]


def free_bytes(home: Path) -> int:
    return shutil.disk_usage(next(path for path in [home, *home.parents] if path.exists())).free


# -- the network -----------------------------------------------------------------------------------------------


def way(address: str, peers: dict[str, str]) -> dict[str, Any]:
    """The card that the kernel takes to the peers, told by it and not guessed; one for all of them, or a finding."""
    cards_to = {name: card_to(peer) for name, peer in (peers or {"itself": address}).items()}
    lost = sorted(name for name, card in cards_to.items() if not card)
    if lost:
        return {"why": f"it has no route to {', '.join(lost)}"}
    if len(set(cards_to.values())) > 1:
        told = ", ".join(f"{name} by {card}" for name, card in cards_to.items())
        return {"why": f"it reaches its peers by different network cards: {told}"}
    card = next(iter(cards_to.values()))
    folder = Path("/sys/class/net", card)
    return {"why": "", "card": card, "mbit": link_mbit(folder), "wireless": (folder / "wireless").exists()}


def card_to(address: str) -> str:
    done = subprocess.run(["ip", "-json", "route", "get", address], capture_output=True, text=True, check=False)
    routes = json.loads(done.stdout or "[]")
    return str(routes[0].get("dev", "")) if done.returncode == 0 and routes else ""


def taken(port: int) -> bool:
    """Whether any program listens there: the agent wants it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def link_mbit(folder: Path) -> int:
    """As the card says; 0 where it does not (Wi-Fi, loopback)."""
    try:
        return max(0, int((folder / "speed").read_text()))
    except (OSError, ValueError):
        return 0


# -- runs ------------------------------------------------------------------------------------------------------


def known_runs(home: Path) -> dict[str, dict[str, Any]]:
    """Name → what it was launched with, how far it came, and whether it is done."""
    checkpoints, logs = home / "models/checkpoints", home / "logs/runs"
    names = {path.name for folder in (checkpoints, logs) for path in folder.glob("[!.]*") if path.is_dir()}
    return {
        name: {
            "launched": read_json(logs / name / "launch.json"),
            "step": max((step_of(path) for path in checkpoints.glob(f"{name}/step-*")), default=0),
            "done": (home / "results" / name / "adapter").is_dir(),
            "changed": max(path.stat().st_mtime for path in [logs / name, checkpoints / name] if path.exists()),
        }
        for name in sorted(names)
    }


def step_of(folder: Path) -> int:
    found = re.fullmatch(r"step-(\d+)", folder.name)
    return int(found[1]) if found else 0


def run_on(home: Path) -> str:
    """The name of the run that is on here, by the unit or by hand; empty when none is."""
    named = re.search(r"(?m)^run: *[\"']?([^\"'\n]+)", read(home / "config/cluster_config.yaml"))
    try:
        unit = ["systemctl", "is-active", "--quiet", "motley-run.service"]
        if subprocess.run(unit, check=False, timeout=10).returncode == 0:
            return named[1].strip() if named else "a run without a name"
    except (OSError, subprocess.TimeoutExpired):
        pass
    for file in (home / "logs/runs").glob("*/agent.json"):
        fresh = time.time() - file.stat().st_mtime < AGENT_SILENT_S
        told = read_json(file)
        if fresh and told.get("state") not in ("done", "failed") and lives(told.get("pid")):
            return file.parent.name
    return ""


def lives(pid: object) -> bool:
    """Whether that process is an agent; true where none is named."""
    if pid is None:
        return True
    try:
        return b"agent" in Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return False


def measured(home: Path, runs: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows per second of every node of the newest runs, as the runs themselves measured them while computing."""
    found = []
    newest = sorted(runs, key=lambda name: runs[name]["changed"], reverse=True)[:MEASURED_RUNS]
    for name in newest:
        rates: dict[str, list[float]] = {}
        for event in last_steps(home / "logs/runs" / name / "events.jsonl"):
            for node, did in event["nodes"].items():
                if did["rows"] and did["compute_s"] > 0:
                    rates.setdefault(node, []).append(did["rows"] / did["compute_s"])
        if rates:
            speeds = {node: round(statistics.median(values), 4) for node, values in rates.items()}
            found.append({"run": name, "launched": runs[name]["launched"], "speeds": speeds})
    return found


def last_steps(file: Path) -> list[dict[str, Any]]:
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - TAIL_BYTES))
            lines = stream.read().split(b"\n")[1:-1]
    except OSError:
        return []
    events = [json.loads(line) for line in lines if line.startswith(b'{"event": "step"')]
    return events[-MEASURED_STEPS:]


def read_json(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text()))
    except (OSError, ValueError):
        return {}


if __name__ == "__main__":
    main()
