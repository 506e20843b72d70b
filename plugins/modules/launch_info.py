#!/usr/bin/python
# MIT License, see LICENSE
"""What a launch must know of a node: memory, GPUs, disk, its route to its peers, its runs, and which one is running."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import statistics
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ansible.module_utils.motley import preloading, run_files
from ansible.module_utils.motley.change_queue import waiting
from ansible.module_utils.motley.doctor_network import number, route_to
from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.files import existing, read, read_json
from ansible.module_utils.motley.run_files import end_of, newest_checkpoint
from ansible.module_utils.motley.run_processes import run_on
from ansible.module_utils.motley.versions import collect
from ansible.module_utils.motley.who_reaches_whom import meet
from ansible.module_utils.train import nvidia_smi
from ansible.module_utils.train.runlog.paths import (
    DECIDED,
    EVENTS,
    LAUNCH,
    checkpoints,
    logs,
    made,
)

DOCUMENTATION = r"""
module: launch_info
short_description: A node's facts for the plan of a run
author: Motley
description:
  - Reads memory, cards, disk, the route to the peers, the known runs and all versions.
  - Knocks at the peers where O(knock_port) is set; then it must run on all of them in parallel.
  - Changes nothing. With O(preload) the node begins to load what any run needs, until no run follows.
options: {
  "home": {"type": "path", "required": true, "description": "The cluster's folder on the node"},
  "address": {"type": "str", "required": true, "description": "The node's own address"},
  "peers": {"type": "dict", "default": {}, "description": "The other nodes: name to address"},
  "port": {"type": "int", "default": 29400, "description": "Where the agents of a run talk to each other"},
  "name": {"type": "str", "default": "", "description": "This node, as the others know it"},
  "knock_port": {"type": "int", "default": 0, "description": "A free port of the training range; 0, it does not knock"},
  "prove": {"type": "dict", "default": {},
    "description": "The config.json of a model that is to be proven here, before it comes; empty, none is"},
  "packages": {"type": "list", "elements": "str", "default": [],
    "description": "Python packages to return the versions of"},
  "preload": {"type": "str", "default": "", "description": "Hash of the training package that the run will have"}
}
"""
EXAMPLES = """
- name: Read what a plan needs to know of a node
  launch_info:
    home: ~/ai-cluster
    address: "{{ motley_address }}"
    packages: [torch]
  register: seen
"""
RETURN = r"""
look: {type: dict, returned: always, description: The facts by name}
versions: {type: dict, returned: always, description: Key to version or hash; null where there is none}
"""
KNOCK_S = 10.0
PROOF_S = 120.0
MEASURED_RUNS, MEASURED_STEPS = 8, 20
NO_MEMORY = ("[N/A]", "[Not Supported]")


def main() -> None:
    module = module_of(DOCUMENTATION)
    params, home = module.params, Path(module.params["home"])
    with ThreadPoolExecutor(2) as pool:
        missed, proof = pool.submit(knock, params), pool.submit(prove, home, params["prove"])
        versions = collect(home, params["packages"], write=not module.check_mode)
        on = run_on(home)
        fits = params["preload"] and params["preload"] == versions["train"] and not on
        loads = bool(fits) and not module.check_mode and preloading.begin(home)
        look = look_at(home, params) | {"run_on": on, "loads": loads, "missed": missed.result()}
        look["waiting"] = waiting(home)
        look["port_taken"] = 0 if on else look["port_taken"]  # by the agent of the run
        look["proof"] = proof.result()
    module.exit_json(changed=False, look=look, versions=versions)


def look_at(home: Path, params: dict[str, Any]) -> dict[str, Any]:
    runs = known_runs(home)
    return {
        "home": str(home),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory_bytes(),
        "cards": cards(),
        "free_bytes": shutil.disk_usage(existing(home)).free,
        "route": route(params["address"], params["peers"]),
        "obeys": unit_is_active("motley-asked.path"),
        "port_taken": params["port"] if taken(params["port"]) else 0,
        "runs": runs,
        "measured": measured(home, runs),
    }


def prove(home: Path, config: dict[str, Any]) -> dict[str, Any]:
    """The verdict on a model, by the environment that trains; empty where there is none yet, or an older package."""
    python = home / "env/bin/python"
    if not config or not python.exists():
        return {}
    # Without MOTLEY_HOME, by which the processes of a run are known. A miniature is too small to share over cores.
    paths = {"PYTHONPATH": str(home / "code")}
    env = os.environ | paths | {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [str(python), "-m", "train", "check-model", "--json", "--model", "-"]
    model_config = json.dumps(config).encode()
    try:
        done = subprocess.run(
            command, input=model_config, capture_output=True, check=False, cwd=home, env=env, timeout=PROOF_S
        )
        verdict: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["verdict"]
    except (OSError, subprocess.TimeoutExpired, IndexError, KeyError, ValueError):
        return {}
    return verdict


def knock(params: dict[str, Any]) -> list[str]:
    """The peers that do not answer on a port of runs."""
    if not params["knock_port"] or not params["peers"]:
        return []
    try:
        return meet(params["name"], params["knock_port"], params["peers"], KNOCK_S)[0]
    except OSError:  # the port is taken
        return []


def cards() -> list[dict[str, Any]]:
    """One entry a card that the driver shows."""
    try:
        asked = ["name", "memory.total", "memory.used", "compute_cap", "power.limit"]
        rows = nvidia_smi.table("gpu", asked, timeout_s=10)
    except nvidia_smi.Silent:
        return []
    return [
        {
            "name": row["name"],
            **memory,
            "capability": row["compute_cap"],
            "power_limit": row["power.limit"],
        }
        for row in rows
        if (memory := card_memory(row["memory.total"], row["memory.used"]))
    ]


def card_memory(total_mb: str, used_mb: str) -> dict[str, int]:
    """The machine's own where the card has none and nvidia-smi writes [N/A], as on a GB10. Nothing where the card does
    not answer (ERR!, [Unknown Error]): it cannot compute either."""
    if total_mb in NO_MEMORY:
        return {"bytes": memory_bytes(), "used": memory_bytes() - preloading.available_bytes()}
    try:
        return {"bytes": int(float(total_mb)) << 20, "used": int(float(used_mb)) << 20}
    except ValueError:
        return {}


def memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def unit_is_active(unit: str) -> bool:
    try:
        return subprocess.run(["systemctl", "is-active", "--quiet", unit], check=False, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


# -- the network -----------------------------------------------------------------------------------------------


def route(address: str, peers: dict[str, str]) -> dict[str, Any]:
    """The NIC that the kernel uses for the peers, asked and not guessed; one for all of them, or a finding."""
    nics = {name: route_to(peer)["nic"] for name, peer in (peers or {"itself": address}).items()}
    lost = sorted(name for name, nic in nics.items() if not nic)
    if lost:
        return {"why": f"it has no route to {', '.join(lost)}"}
    if len(set(nics.values())) > 1:
        by_each = ", ".join(f"{name} by {nic}" for name, nic in nics.items())
        return {"why": f"it reaches its peers by different network cards: {by_each}"}
    nic = next(iter(nics.values()))
    folder = Path("/sys/class/net", nic)
    return {"why": "", "nic": nic, "mbit": number(read(folder / "speed")), "wireless": (folder / "wireless").exists()}


def taken(port: int) -> bool:
    """Whether any program listens there: the agent wants it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


# -- runs ------------------------------------------------------------------------------------------------------


def known_runs(home: Path) -> dict[str, dict[str, Any]]:
    """Name → what it was launched with, how far it came, and whether it is done."""
    return {
        name: {
            "launched": read_json(logs(home, name) / LAUNCH),
            "step": newest_checkpoint(home, name),
            "done": made(home, name) is not None,
            "changed": max(
                path.stat().st_mtime for path in [logs(home, name), checkpoints(home, name)] if path.exists()
            ),
        }
        for name in run_files.known_runs(home)
    }


def measured(home: Path, runs: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows per second of every node of the newest runs, as the runs themselves measured them while computing."""
    measured_runs = []
    newest = sorted(runs, key=lambda name: runs[name]["changed"], reverse=True)[:MEASURED_RUNS]
    for name in newest:
        rates: dict[str, list[float]] = {}
        steps = [event for event in end_of(logs(home, name) / EVENTS).events() if event.get("event") == "step"]
        for event in steps[-MEASURED_STEPS:]:
            for node, did in event["nodes"].items():
                if did["rows"] and did["compute_s"] > 0 and "layers" not in did:
                    rates.setdefault(node, []).append(did.get("part", did["rows"]) / did["compute_s"])
        speeds = {node: round(statistics.median(values), 4) for node, values in rates.items()}
        layers = layer_speeds(checkpoints(home, name) / DECIDED)
        if speeds or layers:
            measured_runs.append(
                {"run": name, "launched": runs[name]["launched"], "speeds": speeds, "layer_speeds": layers}
            )
    return measured_runs


def layer_speeds(file: Path) -> dict[str, float]:
    """Layers of a row per second of each node, of a run whose model was cut."""
    words = str(read_json(file).get("stage_speeds") or "")
    pairs = [part.partition("=") for part in words.split(",") if part]
    return {name: float(speed) for name, _, speed in pairs}


if __name__ == "__main__":
    main()
