"""Decides the run on the controller, from what was asked and what every node told; changes nothing.

train/plan decides; here is what it needs from outside: Ansible's variables, the training package, the hub.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from console import hub, launch_request, plan_view, receipt
from train.plan import obstacles, plan, runs, speed
from train.plan.hashes import package_hash
from train.plan.nodes import GIB, Node, nodes_of

ROOT = Path(__file__).parents[2]


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        known = task_vars or {}
        try:
            found = decide(known, self._task.args, hub.token(known["hostvars"][known["inventory_hostname"]]))
        except launch_request.Refused as finding:
            return result | {"failed": True, "msg": str(finding)}
        data = plan.as_data(found)
        here = package_hash(ROOT / "train")
        data["old_code"] = [name for name, told in versions_of(known).items() if told["train"] != here]
        return result | {"changed": False, "plan": data, "motley_lines": plan_view.lines(found)}


def decide(known: dict[str, Any], args: dict[str, Any], token: dict[str, str]) -> plan.Plan:
    wish, names = args["asked"], list(known["ansible_play_hosts"])
    hostvars = known["hostvars"]
    off = left_out(wish, names, hostvars)
    if off and wish["named_nodes"]:
        raise launch_request.Refused("\n".join(off.values()))
    looks = {name: hostvars[name]["motley_plan_look"]["look"] for name in names}
    for name in names:
        looks[name]["missed"] = hostvars[name].get("motley_plan_knocked", {}).get("missed", [])
    told = versions_of(known)
    refuse_a_second_run(looks)
    run, about = which_run(wish, looks)
    findings = obstacles.unequal(told)
    nodes = nodes_of(
        {name: str(hostvars[name]["motley_address"]) for name in names},
        looks,
        told,
        {name: hostvars[name]["motley_processes"] for name in names if "motley_processes" in hostvars[name]},
        str(about["all"]["device"]),
    )
    findings += obstacles.in_the_way(nodes, dict.fromkeys(names, 0))
    if findings:
        raise launch_request.Refused("\n".join(findings))
    mbit, why = speed.link(nodes, receipt.link_mbit(Path(args["state_folder"]) / "receipts"))
    found = with_memory(run, about, nodes, told, mbit=mbit, token=token)
    found.link_why = why
    findings = obstacles.does_not_fit(nodes, found.memory)
    needed = {name: 0 if here else found.model_bytes for name, here in found.here.items()}
    findings += obstacles.in_the_way(nodes, needed)
    if findings:
        raise launch_request.Refused("\n".join(findings))
    found.speeds = speed.speeds(nodes, found.settings, calibrated(known))
    found.outlook = ask_outlook(found)
    found.warnings += [f"{why}; it is left out" for why in off.values()]
    found.warnings += speed.slows_the_run(found.outlook)
    wireless = [node.name for node in nodes if node.look["way"]["wireless"]]
    found.warnings += [f"{name} is on Wi-Fi: a cable would make every step quicker" for name in wireless]
    return found


def calibrated(known: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Of the nodes that were asked how fast they compute, and could tell."""
    found = {}
    for name in known["ansible_play_hosts"]:
        said = str(known["hostvars"][name].get("motley_plan_calibration", {}).get("stdout", ""))
        with contextlib.suppress(IndexError, ValueError, KeyError, TypeError):
            found[name] = dict(json.loads(said.strip().splitlines()[-1])["speed"])
    return found


def versions_of(known: dict[str, Any]) -> dict[str, dict[str, str | None]]:
    return {name: known["hostvars"][name]["motley_plan_versions"]["versions"] for name in known["ansible_play_hosts"]}


def left_out(wish: dict[str, Any], names: list[str], hostvars: Any) -> dict[str, str]:
    """Nodes that were asked for and do not answer."""
    met = hostvars[names[0]].get("motley_contact_found", {}).get("met", {})
    return {
        name: f"{name} is off: nobody answers at {' or '.join(met.get(name, {}).get('tried', ['its address']))}"
        for name in wish["nodes"]
        if name not in names
    }


def refuse_a_second_run(looks: dict[str, Any]) -> None:
    on: dict[str, list[str]] = {}
    for name, look in looks.items():
        if look["run_on"]:
            on.setdefault(look["run_on"], []).append(name)
    if on:
        told = "; ".join(f"'{run}' is on, on {', '.join(nodes)}" for run, nodes in on.items())
        raise launch_request.Refused(f"{told}\nfix: make stop, or wait for its end by itself: -e queue=true")


def which_run(wish: dict[str, Any], looks: dict[str, Any]) -> tuple[runs.Run, dict[str, Any]]:
    about = wish["about"]
    run, findings = runs.choose_run(wish["values"], about, runs.known_runs(looks))
    if run is None:
        raise launch_request.Refused("\n".join(findings))
    if run.values != wish["values"]:
        about, findings = launch_request.check_values(run.values)
        if findings:
            raise launch_request.Refused("\n".join(findings))
    return run, about


def with_memory(
    run: runs.Run,
    about: dict[str, Any],
    nodes: list[Node],
    told: dict[str, Any],
    *,
    mbit: float,
    token: dict[str, str],
) -> plan.Plan:
    """The model as it will be trained: where it comes from, how it is held, and whether that fits."""
    settings, model = dict(about["all"]), dict(about["model"])
    gpu = all(node.device == "cuda" for node in nodes)
    shape, size, memory = model["folder"] or model["name"], 0, None
    if gpu and model["hub_4bit"] and settings["load_in"] in ("auto", "4bit"):
        memory = ask_memory(shape, settings, nodes, mbit, told)
        settings["load_in"] = memory["decisions"]["load_in"]
        model["in_4bit"] = settings["load_in"] == "4bit"
    name = model["local_name"] + ("-4bit" if model.get("in_4bit") else "")
    here = plan.who_has(f"model {name}", told)
    if model["source"] == "folder":
        model["comes_from"], size = "folder", sum(f.stat().st_size for f in Path(model["folder"]).rglob("*"))
        here = dict.fromkeys(here, False)  # it may have changed: the relay looks, file by file
    elif model["embedded"]:
        model["comes_from"] = "head"
    else:
        seen, failures = launch_request.train(*hub.look_words(model), env=token)
        if failures and not (all(here.values()) and model["source"] == "catalogue"):
            raise launch_request.Refused(hub.in_words(failures[0], model, bool(token)))
        model["comes_from"] = "head" if failures else "hub"
        shape, size = (model["name"], 0) if failures else (str(Path(seen["config"]).parent), seen["bytes"])
        memory = None  # the true shape is known now
    memory = memory or ask_memory(shape, settings, nodes, mbit, told)
    settings |= memory["decisions"]  # here, once for all nodes: none of them decides again when another leaves
    settings["run"] = run.name
    model["folder_name"] = name
    if model.get("in_4bit"):
        model["reason"] += f", {model['hub_4bit']} is its copy in 4 bit"
    return plan.Plan(
        run=run,
        nodes=nodes,
        settings=settings,
        model=model,
        dataset=about["dataset"],
        help=about["help"],
        memory=memory,
        link_mbit=mbit,
        model_bytes=size or 2 * memory["parameters"],
        shape=shape,
        here=here,
    )


def ask_memory(
    shape: str, settings: dict[str, Any], nodes: list[Node], mbit: float, told: dict[str, Any]
) -> dict[str, Any]:
    sizes = [f"{node.name}={'cpu:' * (node.device == 'cpu')}{node.bytes / GIB:.3f}" for node in nodes]
    old = ",".join(node.name for node in nodes if node.device == "cuda" and not node.bf16)
    without = ",".join(node.name for node in nodes if not told[node.name].get("unsloth"))
    has = ["--without-bf16", old, "--without-unsloth", without]
    return ask_plan(shape, settings, mbit, "--nodes", ",".join(sizes), *has)


def ask_outlook(found: plan.Plan) -> dict[str, Any]:
    words = speed.outlook_words(found.nodes, found.speeds, found.settings, found.link_mbit)
    return ask_plan(found.shape, found.settings, found.link_mbit, *words) if words else {}


def ask_plan(shape: str, settings: dict[str, Any], mbit: float, *more: str) -> dict[str, Any]:
    names = ["max_seq_length", "load_in", "lora_r", "lora_targets", "method", "optimizer", "gradient_checkpointing"]
    names += ["backend", "precision"]
    words = [word for name in names for word in (f"--{name.replace('_', '-')}", str(settings[name]))]
    words += ["--micro-batch", str(settings["micro_batch"] or 1), *([] if settings["pack"] else ["--no-pack"])]
    told, failures = launch_request.train("plan", "--model", shape, "--link-mbit", f"{mbit:.0f}", *words, *more)
    if failures:
        raise launch_request.Refused("\n".join(failures))
    return told
