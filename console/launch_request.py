"""What a person asked `launch.yml` for, checked before anything is connected to.

The rules of a setting are train/plan's. What only a launch knows (which nodes, follow, queue) is checked here.
"""

from __future__ import annotations

import itertools
import json
import shlex
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any

from console import infra
from console.curves.trackers import KINDS
from console.hub import FETCHED, ROOT
from console.inventory.keys import FOLDER_RULE, KEYS, is_folder, role_keys
from console.inventory.what_is_wrong import nearest
from train.data.look import look
from train.errors import BadInput
from train.plan.settings import request, step_aside_rules

SWITCHES = {"follow": True, "queue": False}
MOST_RUNS = 100
"""The most runs that one sweep may have."""
OF_INFRAS = {name: each for each in infra.NAMES for name in infra.about(each).variables}
"""The launch variables that one infra alone takes."""
LAUNCH_ONLY = ("nodes", "at", "then", "report_to", *SWITCHES, *OF_INFRAS)
NOT_OURS = ("motley_", "ansible_", "awx_", "tower_")
"""Motley's own are checked by `unknown_inner`; AWX adds its own to every job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    values: dict[str, Any]
    """Settings that were given, as given."""
    nodes: list[str]
    """In the inventory's order."""
    named_nodes: bool
    """Whether the nodes were named, or are simply all."""
    follow: bool = True
    queue: bool = False
    of_infra: dict[str, Any] = field(default_factory=dict)
    """The variables that this infra alone takes, as given."""
    sweep: list[dict[str, str]] = field(default_factory=list)
    """Settings of each run, where there are several."""
    not_before: float = 0.0
    """When the run may begin; 0: now."""
    then: str = ""
    """What the machines do after it: suspend, poweroff or nothing."""
    report_to: str = ""
    """The program that draws its curves: console/curves/trackers.py."""
    data: dict[str, Any] = field(default_factory=dict)
    """What the file to train on holds, where it is of this computer (train/data/look.py)."""


def read(
    variables: dict[str, Any],
    cluster: list[str],
    limit: list[str] | None = None,
    homes: Iterable[str] = (),
    *,
    on: str = infra.USUAL,
) -> Asked:
    """What Ansible's extra variables ask for; BadInput has all findings at once. `limit`: hosts of --limit, as good as
    `nodes`."""
    own = {name: value for name, value in variables.items() if not name.startswith(NOT_OURS)}
    cut_off = own.pop("_raw_params", "")
    plain = json.loads(json.dumps(own, default=str))  # without Ansible's own kinds of text
    values = {name: value for name, value in plain.items() if name not in LAUNCH_ONLY}
    data, wrong_settings, wrong_data = checked_settings(values)
    nodes, wrong_nodes = chosen_nodes(own.get("nodes"), cluster, cluster if limit is None else limit)
    switches = {name: truth(own.get(name), default) for name, default in SWITCHES.items()}
    swept, wrong_sweep = sweep_of(own.get("sweep"), values)
    not_before, wrong_time = begin(own.get("at"))
    then, report_to = (str(own.get(name) or "") for name in ("then", "report_to"))
    findings = wrong_settings + without_name(cut_off) + unknown_inner(variables) + wrong_nodes + wrong_homes(homes)
    findings += wrong_switches(switches, own) + wrong_on(on, own) + wrong_sweep + wrong_time
    findings += wrong_tracker(report_to) + wrong_then(then)
    if findings:
        findings.append("all variables, with an example of each: docs/reference.md")
    if findings or wrong_data:
        raise BadInput("\n".join([*wrong_data, *findings]))
    return Asked(
        values=values,
        nodes=nodes,
        named_nodes=own.get("nodes") not in (None, "", "all") or limit is not None,
        follow=bool(switches["follow"]),
        queue=bool(switches["queue"]),
        of_infra={name: plain[name] for name in infra.about(on).variables if plain.get(name)},
        sweep=swept,
        not_before=not_before,
        then=then,
        report_to=report_to,
        data=data,
    )


def checked_settings(values: dict[str, Any]) -> tuple[dict[str, Any], list[str], list[str]]:
    """What is known of the data, what is wrong with the settings, and what is wrong with the data."""
    required = "" if str(values.get("resume", "auto")) not in ("auto", "never") else "model,dataset,search"
    try:
        wanted = request.read(values, FETCHED, also=LAUNCH_ONLY, required=required, what="variable")
    except BadInput as wrong:
        return {}, [str(wrong)], []
    try:
        return look(wanted) if required else {}, [], []
    except BadInput as wrong:
        return {}, [], [str(wrong)]


def without_name(cut_off: str) -> list[str]:
    return [f"'{cut_off}' has no name: -e cuts at spaces\nfix: -e '{{\"NAME\": \"VALUE\"}}'"] if cut_off else []


def wrong_homes(homes: Iterable[str]) -> list[str]:
    return [f"motley_home: {home!r} is not {FOLDER_RULE}" for home in dict.fromkeys(homes) if not is_folder(home)]


def wrong_switches(switches: Mapping[str, bool | None], own: Mapping[str, Any]) -> list[str]:
    return [f"{name}: '{own[name]}' is neither true nor false" for name, is_on in switches.items() if is_on is None]


def wrong_then(then: str) -> list[str]:
    known = step_aside_rules.THEN
    return [f"then: '{then}' is none of {', '.join(known)}"] if then not in ("", *known) else []


def wrong_on(on: str, own: dict[str, Any]) -> list[str]:
    """What is wrong with variables that are another infra's, mean nothing on this one, or are its own."""
    given = [name for name, value in own.items() if value not in (None, "", "all")]
    about = infra.about(on)
    for name in given:
        if (owner := OF_INFRAS.get(name, on)) != on:
            return [f"{name} is for {owner.capitalize()}\nfix: ./motley launch --infra {owner}"]
    own_wrong = resolve_name(about.wrong)(own) if about.wrong else []
    return [*(f"{name}: {about.refused[name]}" for name in given if name in about.refused), *own_wrong]


def wrong_tracker(name: str) -> list[str]:
    if name in ("", *KINDS):
        return []
    close = nearest(name, KINDS, otherwise="leave it out: ./motley report shows the curves too")
    return [f"report_to: '{name}' is none of {', '.join(KINDS)}\nfix: {close}"]


def sweep_of(text: Any, values: dict[str, Any]) -> tuple[list[dict[str, str]], list[str]]:
    """Each combination of NAME=VALUE,VALUE, and what is wrong with one."""
    no_sweep = f"sweep: '{text}' is not NAME=VALUE,VALUE\nfix: --sweep 'learning_rate=1e-4,2e-4 lora_r=8,16'"
    try:
        pairs = [word.partition("=") for word in shlex.split(str(text or ""))]
    except ValueError:  # a quote is not closed
        return [], [no_sweep]
    named = {name: [value for value in listed.split(",") if value] for name, _, listed in pairs}
    if any(not values for values in named.values()) or len(named) < len(pairs):
        return [], [no_sweep]
    if twice := [name for name in named if name in values]:
        return [], [f"sweep: {twice[0]} is set beside it\nfix: take one of the two out"]
    runs = [dict(zip(named, chosen, strict=True)) for chosen in itertools.product(*named.values())] if named else []
    if len(runs) > MOST_RUNS:
        return [], [f"sweep: these are {len(runs)} runs\nfix: {MOST_RUNS} at most"]
    for run in runs:
        try:
            request.read({"model": "tiny", **values, **run}, FETCHED, what="variable")
        except BadInput as wrong:
            return [], [f"sweep: {wrong}"]
    return runs, []


def begin(clock: Any) -> tuple[float, list[str]]:
    """The next time that the clock here shows this."""
    if clock in (None, ""):
        return 0.0, []
    if isinstance(clock, int) and clock >= 60:  # YAML reads 22:00 as a number to the base of 60, and 1:00 is the least
        clock = f"{clock // 60}:{clock % 60:02}"
    try:
        return step_aside_rules.next_time(str(clock), time.time()), []
    except BadInput as wrong:
        return 0.0, [str(wrong)]


def chosen_nodes(words: Any, cluster: list[str], limit: list[str]) -> tuple[list[str], list[str]]:
    """The nodes that take part, and what is wrong with the words."""
    if words in (None, "", "all"):
        return [name for name in cluster if name in limit], []
    names = [str(word) for word in words] if isinstance(words, list) else str(words).replace(",", " ").split()
    wrong = [
        f"nodes: there is no '{name}' in the inventory, which has {', '.join(cluster)}"
        for name in names
        if name not in cluster
    ]
    wrong += [f"nodes: --limit leaves '{name}' out" for name in names if name in cluster and name not in limit]
    return [name for name in cluster if name in names], wrong


def truth(value: Any, default: bool) -> bool | None:
    yes, no = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
    word = str(default if value is None else value).lower()
    return True if word in yes else False if word in no else None


def unknown_inner(variables: dict[str, Any]) -> list[str]:
    """Motley's own variables may be given as well; a misspelled one would be silently ignored by Ansible."""
    known = {**role_keys(ROOT / "roles"), **KEYS}
    given = [name for name in variables if name.startswith("motley_") and name not in known]
    findings = [f"unknown variable '{name}': {nearest(name, known)}" for name in given]
    if "motley_notify" in variables:
        findings += ["motley_notify belongs into the inventory: notify-test reads it there\nfix: docs/training.md"]
    return findings
