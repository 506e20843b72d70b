"""Decides a run on machines of one's own, from what was asked and what every node reported."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from console import (
    adapter_of_run,
    electricity,
    hub,
    launch_records,
    notice_address,
    plan_view,
    playbook_receipt,
    render,
)
from console.infra import Facts
from console.infra.node import ask_all, from_hostvars
from train.errors import BadInput
from train.plan.launch.decide import decide
from train.plan.launch.plan_for_playbook import launch_plan
from train.plan.machines.facts import NodeFacts
from train.plan.machines.nodes import LaunchFacts
from train.plan.model.verdict import Verdict
from train.plan.settings import request
from train.runlog import paths
from train.versions import package_hash

ROOT = Path(__file__).parents[3]
ASKING = ("motley_plan_look", "motley_plan_decided")
"""The steps whose results have what the hub answered."""


def plan(known: Facts, args: Facts) -> Facts:
    try:
        return decided(known, args)
    except BadInput:
        unload(known)
        raise


def decided(known: Facts, args: Facts) -> Facts:
    hub_asked = of_the_hub(known)
    facts = facts_of(known, args["asked"], Path(args["state_folder"]), hub_asked)
    notified = [name for name in known["ansible_play_hosts"] if notice_address.unlocked(known["hostvars"][name])]
    messages = notice_address.plan_lines(f"on {', '.join(notified)} ({paths.SECRET}, 0600)" if notified else "")
    refuse_deaf(known, args["asked"])
    queue = bool(args["asked"].get("queue"))
    decision = decide(request.read(args["asked"]["values"], hub.FETCHED), facts, queue=queue)
    adapter_of_run.require_base(decision)
    hub.require_data(decision.request.dataset, hub.token(known["hostvars"][known["inventory_hostname"]]))
    cost = electricity.of_plan(decision, known["hostvars"])
    lines = plan_view.lines(decision, electricity.plan_words(cost), args["asked"]["data"])
    plan = launch_plan(decision, cost).to_json()
    return {"plan": plan, "motley_lines": [*lines, *messages], "hub": hub_asked.answers}


def of_the_hub(known: Facts) -> hub.Asked:
    """What the look has heard, and this step where it comes a second time, is not asked again."""
    steps = [known["hostvars"][name].get(step, {}) for name in known["ansible_play_hosts"] for step in ASKING]
    heard = {repo: answer for step in steps for repo, answer in step.get("hub", {}).items()}
    return hub.Asked(hub.token(known["hostvars"][known["inventory_hostname"]]), heard)


def unload(known: Facts) -> None:
    """What the nodes have begun to load for this launch."""
    loading = [name for name, node in looked_at(known).items() if node.loads]
    ask_all(from_hostvars(loading, known["hostvars"]), lambda node: node.unload())


def refuse_deaf(known: dict[str, Any], asked: dict[str, Any]) -> None:
    """Only root can put a machine to sleep or limit its card: the units do that bootstrap has installed."""
    hosts = {name: known["hostvars"][name] for name in known["ansible_play_hosts"]}
    deaf = [name for name, node in looked_at(known).items() if not node.obeys]
    wanted = {"then": [name for name in deaf if asked.get("then")]}
    wanted |= {key: [name for name in deaf if hosts[name].get(key)] for key in render.LIMITS.values()}
    for what, names in wanted.items():
        if names:
            fix = f"./motley bootstrap --phase run --nodes {','.join(names)}, or leave it out"
            raise BadInput(f"{what}: nothing on {', '.join(names)} would do that\nfix: {fix}")


def facts_of(known: dict[str, Any], asked: dict[str, Any], state: Path, hub_asked: hub.Asked) -> LaunchFacts:
    """BadInput where a node that was named does not answer."""
    hosts = {name: known["hostvars"][name] for name in known["ansible_play_hosts"]}
    contacts = next(iter(hosts.values())).get("motley_contact_found", {}).get("contacts", {})
    off = {
        name: f"{name} is off: nobody answers at {' or '.join(contacts.get(name, {}).get('tried', ['its address']))}"
        for name in asked["nodes"]
        if name not in hosts
    }
    if off and asked["named_nodes"]:
        raise BadInput("\n".join(off.values()))
    nodes = looked_at(known)
    return LaunchFacts(
        addresses={name: str(host["motley_address"]) for name, host in hosts.items()},
        nodes=nodes,
        versions={name: host["motley_plan_look"]["versions"] for name, host in hosts.items()},
        processes={name: host["motley_processes"] for name, host in hosts.items() if "motley_processes" in host},
        weights={
            name: weights_of(name, host["motley_weights"]) for name, host in hosts.items() if "motley_weights" in host
        },
        off=off,
        launched=launch_records.known(state),
        proof_mbit=playbook_receipt.link_mbit(state / "receipts"),
        calibrated=calibrated(hosts),
        unmeasured=unmeasured(hosts),
        code=package_hash(ROOT / "train"),
        verdict=next((Verdict.from_json(dict(node.proof)) for node in nodes.values() if node.proof), None),
        files=hub_asked.files,
    )


def looked_at(known: Facts) -> dict[str, NodeFacts]:
    """The hosts that have answered; of a launch that failed, they may be none."""
    looks = {
        name: known["hostvars"][name].get("motley_plan_look", {}).get("look") for name in known["ansible_play_hosts"]
    }
    return {name: NodeFacts.from_json(look) for name, look in looks.items() if look}


def weights_of(name: str, value: Any) -> str:
    if value not in ("auto", "gpu", "stream"):
        raise BadInput(
            f"{name}: motley_weights: '{value}' is none of auto|gpu|stream\nfix: correct it in the inventory"
        )
    return str(value)


def calibrated(hosts: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The speeds of the nodes that were asked how fast they compute, and know it."""
    return {name: dict(answer["speed"]) for name, answer in measurements(hosts).items() if answer.get("speed")}


def unmeasured(hosts: dict[str, Any]) -> dict[str, str]:
    """What a node said that could not measure it, with what to do."""
    failures = {name: answer.get("failures") for name, answer in measurements(hosts).items()}
    return {name: " · ".join(str(reasons[0]).splitlines()) for name, reasons in failures.items() if reasons}


def measurements(hosts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    by_node = {}
    for name, host in hosts.items():
        printed = str(host.get("motley_plan_calibration", {}).get("stdout", ""))
        with contextlib.suppress(IndexError, ValueError, TypeError):
            by_node[name] = dict(json.loads(printed.strip().splitlines()[-1]))
    return by_node
