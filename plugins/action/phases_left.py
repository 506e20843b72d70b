"""From every node's look: which phases would do something on some node, and run; and which left all as it still is."""

from __future__ import annotations

from typing import Any

from console.on_controller import Facts, OnController


class ActionModule(OnController):
    def answer(self, known: Facts, args: Facts) -> Facts:
        nodes = {name: reasons(known["hostvars"][name]) for name in known["ansible_play_hosts"]}
        because = to_run(args["phases"], args["stands_on"], nodes)
        first = next((known["hostvars"][name].get("__motley_as_left_seen") or {} for name in nodes), {})
        proven = first.get("proven") or {}
        left = {phase: list(proven.get(phase, [])) for phase in args["phases"] if phase not in because}
        return {"run": list(because), "because": because, "motley_as_left": left}


def reasons(node: Any) -> dict[str, str]:
    """Phase to why it runs, of this node alone; empty where it need not. A phase that is missing was not looked at."""
    seen, noted = node.get("__motley_as_left_seen") or {}, node.get("__motley_as_left_noted") or {}
    if seen.get("failed") or noted.get("failed"):
        return {}
    doubts = dict(node.get("__motley_as_left_doubts") or {})
    return {
        phase: str(would) or ("something is to be decided or done at the controller" if doubts[phase] else "")
        for phase, would in (seen.get("would") or {}).items()
        if phase in doubts
    }


def to_run(phases: list[str], stands_on: dict[str, str], nodes: dict[str, dict[str, str]]) -> dict[str, str]:
    """In their order. What stands on a phase that runs was looked at too early."""
    because: dict[str, str] = {}
    for phase in phases:
        below = stands_on.get(phase, "")
        if why := f"{below} runs" if below in because else in_doubt(phase, nodes):
            because[phase] = why
    return because


def in_doubt(phase: str, nodes: dict[str, dict[str, str]]) -> str:
    """Most phases are about the nodes together, so a phase runs on all of them or on none."""
    found = ((name, node.get(phase, "it was not looked at")) for name, node in nodes.items())
    return next((f"{name}: {why}" for name, why in found if why), "")
