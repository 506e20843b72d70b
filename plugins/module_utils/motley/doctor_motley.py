"""What Motley left on a node: whether the phases' work stands, what is left of runs, how big an adapter is."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, TypedDict

from ..train.runlog.last_launch import last_launch
from ..train.runlog.paths import UNIT, WANTED
from . import blocking_rules, run_files, run_processes
from .node_replies import AsideView
from .undo_record import ROOT, Before, undone

# -- the phases of bootstrap -----------------------------------------------------------------------------------


def phases() -> list[Any] | None:
    """Files that a phase wrote and that are no longer as it left them; None where only root may look."""
    if not may_look():
        return None
    undone_files = []
    for manifest in sorted(ROOT.glob("*/manifest.json")):
        before = Before(phase := manifest.parent.name)
        for name, was in before.contents().items():
            if trouble := undone(Path(name), before.data["files"][name].get("after", ""), was):
                undone_files.append({"phase": phase, "path": name, "trouble": trouble})
    return undone_files


def may_look() -> bool:
    try:
        for folder in ROOT.iterdir():
            list(folder.iterdir())
    except FileNotFoundError:
        return True
    except PermissionError:
        return False
    return True


class Firewall(TypedDict):
    kind: str
    on: bool
    friends: list[str]
    """The addresses that are let in."""
    gone: list[str]


class RunsHere(TypedDict):
    on: bool
    run: str
    state: str
    aside: AsideView | None
    agents: list[int]
    orphans: list[int]
    wanted: bool
    unit: str
    result: str


class FilesHere(TypedDict):
    exists: bool
    torch: bool
    interface: str
    adapter_bytes: int


def units() -> dict[str, dict[str, str]] | None:
    """Every unit that a phase switched on, and how it is now: unit → {phase, enabled, active}."""
    if not may_look():
        return None
    found = {}
    for manifest in sorted(ROOT.glob("*/manifest.json")):
        for command in Before(manifest.parent.name).data["undo"]:
            if command[0] == "systemctl" and "disable" in command:
                unit = command[-1]
                found[unit] = {
                    "phase": manifest.parent.name,
                    "enabled": says("systemctl", "is-enabled", unit),
                    "active": says("systemctl", "is-active", unit),
                }
    return found


def firewall() -> Firewall | None:
    """Whose firewall keeps strangers out, who is let in, and which of our rules are gone; None without root."""
    if not may_look() or os.geteuid() != 0:
        return None
    before = Before("firewall")
    ufw = [command[2:] for command in before.data["undo"] if command[:2] == ["ufw", "delete"]]
    if ufw:
        added = says("ufw", "show", "added").splitlines()
        gone = [" ".join(rule) for rule in ufw if f"ufw {' '.join(rule)}" not in added]
        active = "Status: active" in says("ufw", "status")
        ports = {rule[6] for rule in ufw if rule[0] == "allow"}
        allowed = re.findall(r"(?m)^ufw allow from (\S+) to any port (\S+)", "\n".join(added))
        friends = [friend for friend, port in allowed if port in ports]
        return {"kind": "ufw", "on": active, "friends": friends, "gone": gone}
    rules = nft("list", "table", "inet", "motley")
    elements = re.search(r"elements = \{([^}]*)\}", rules)
    return {
        "kind": "nft" if before.recorded else "none",
        "on": "chain guard" in rules and "reject" in rules,
        "friends": re.findall(r"[\d.]+", elements[1]) if elements else [],
        "gone": [],
    }


def rules() -> list[blocking_rules.Rule] | None:
    """Others' rules that close ports; None without root."""
    return blocking_rules.denying(nft("list", "ruleset")) if os.geteuid() == 0 else None


def nft(*words: str) -> str:
    program = shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin")
    return says(program, *words) if program else ""


# -- runs ------------------------------------------------------------------------------------------------------


def runs(home: Path) -> RunsHere:
    """Processes of runs below this home, and what would start one."""
    here = run_processes.processes(home)
    agents = run_processes.agents_of(here)
    run = run_files.named_run(home)
    view = run_files.agent_view(home, run)
    return {
        "on": bool(agents),
        "run": run,
        "state": view.get("state", ""),
        "aside": view.get("aside") if agents else None,
        "agents": agents,
        "orphans": sorted(set(here) - set(agents)) if not agents else [],
        "wanted": (home / WANTED).exists(),
        "unit": says("systemctl", "show", "-p", "ActiveState", "--value", UNIT),
        "result": says("systemctl", "show", "-p", "Result", "--value", UNIT),
    }


def files(home: Path) -> FilesHere:
    """What the next run would use: the network card of the last launch, and the size of what nodes exchange."""
    return {
        "exists": home.is_dir(),
        "torch": bool(list(home.glob("env/lib/python*/site-packages/torch/version.py"))),
        "interface": last_launch(home).interface,
        "adapter_bytes": adapter_bytes(home),
    }


def adapter_bytes(home: Path) -> int:
    """The size of the newest adapter in float32, as gradients are; 0 where no run has left one."""
    weight_files = [*home.glob("results/*/adapter/adapter_model.safetensors")]
    weight_files += home.glob("models/checkpoints/*/step-*/adapter_model.safetensors")
    newest = max(weight_files, key=lambda file: file.stat().st_mtime, default=None)
    return numbers_in(newest) * 4 if newest else 0


def numbers_in(file: Path) -> int:
    """How many, from the head of a safetensors file."""
    with file.open("rb") as stream:
        head = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    return sum(math.prod(tensor["shape"]) for name, tensor in head.items() if name != "__metadata__")


def says(*command: str) -> str:
    """In English, whatever its owner speaks."""
    env = {**os.environ, "LC_ALL": "C", "LANGUAGE": ""}
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10, env=env).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
