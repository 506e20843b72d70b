"""What every probe needs: why it finds nothing, which nodes it can judge, and how a sentence is made. Pure."""

from __future__ import annotations

from typing import Any

from console.doctor.readings_and_findings import Finding, NodeReadings, Readings
from console.playbook import ansible_errors

WITHOUT_ROOT = "it needs sudo"
FOLDERS = "the nodes are folders on this machine"
# Phases of bootstrap that neither an address nor a driver nor a restart depends on.
SAFE_PHASES = ("ssh_trust", "hostname", "firewall", "clock", "power", "python_env", "workspace", "run")
# What Ansible says, by the probe that it belongs to.
BELONGS = (("its disk is full", "disk"), ("apt is busy there", "apt"))

Found = tuple[str, list[Finding]]
"""What was seen, and what is wrong with it."""


class Skipped(Exception):
    """Why a probe says nothing."""


def bootstrap(phase: str, node: str) -> str:
    return f"./motley bootstrap --phase {phase} --nodes {node}"


def need(readings: Readings, part: str) -> list[tuple[NodeReadings, Any]]:
    """The nodes whose look has this part; where none has, the reason."""
    parts = [(node, node.part(part)) for node in readings.looked_at]
    present = [(node, facts) for node, facts in parts if facts is not None]
    if present:
        return present
    if not parts:
        raise Skipped("no node could be checked")
    if not any(node.managed for node, _ in parts):
        raise Skipped(FOLDERS)
    troubles = [str((node.look or {}).get("troubles", {}).get(part, "")) for node, _ in parts]
    roots = any((node.look or {})["root"] for node, _ in parts)
    raise Skipped(next(filter(None, troubles), "not asked" if roots else WITHOUT_ROOT))


def no_load(readings: Readings) -> None:
    """What would load the machines waits until no run is running."""
    if running := readings.runs_on:
        raise Skipped(f"skipped: run {next(iter(running.values()))} is running on {', '.join(running)}")
    if not readings.load:
        raise Skipped("skipped: --quick")


def listed(words: list[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def explained(probe: str, name: str, message: str) -> Finding:
    cause = ansible_errors.explain({"msg": message})
    probe = next((mine for what, mine in BELONGS if cause.what == what), probe)
    return Finding(probe=probe, node=name, what=cause.what, fix=cause.fix_on(name))


def number(text: str) -> float:
    """0 where it is none: nvidia-smi writes [N/A]."""
    try:
        return float(text)
    except ValueError:
        return 0.0
