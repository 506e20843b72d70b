"""Chooses one driver branch that serves every card of the cluster, and with it the torch and CUDA; says why. Pure.

A node's facts come from gpu_info; what is known of branches and package names is a catalogue
(roles/motley_gpu_driver/vars/main/driver_and_torch_catalogue.yml). The answer is a plan, or `error` and `fix` where
none can be right. What goes into the environment then: choose_python_env.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plugins.module_utils.motley.driver_facts import Branch, Catalogue, NamedCard, NodeLook
from plugins.module_utils.motley.driver_packages import of_branch, switched_off_fault
from train.nvidia_driver import numbers, older
from train.plan.machines import architectures
from train.plan.machines.architectures import Architecture

Data = dict[str, Any]
Refusal = dict[str, str]
"""error and fix."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """How one node comes to a branch; or why it does not, and what would help."""

    do: str = ""
    """keep or install; empty: neither is possible."""
    open: bool = False
    version: str = ""
    led: str = ""
    """Says that packages of the wanted branch's name only lead to another one; empty where they do not."""
    why_not: str = ""
    fix: str = ""


Options = dict[str, dict[str, Option]]


def plan(nodes: dict[str, NodeLook], catalogue: Catalogue, branch: str = "auto", agreed_set: str = "") -> Data:
    """`agreed_set` is what nodes outside this run already train with: none of them may be dropped."""
    if trouble := first_trouble(nodes):
        return trouble
    with_cards = {name: node for name, node in nodes.items() if node.get("cards")}
    if not with_cards:
        reason = "no node has an NVIDIA card: it trains on its processors"
        return {
            "branch": "",
            "set": "node-cpu",
            "cuda": "",
            "torch": "",
            "reason": reason,
            "nodes": {},
            "settled": True,
        }
    known = [entry for entry in catalogue["branches"] if branch in ("auto", entry["branch"])]
    allowed = [entry for entry in known if not agreed_set or entry["set"] == agreed_set]
    if not allowed:
        error = f"the other nodes train with {agreed_set}; driver branch {branch} is not for that"
        return {"error": error, "fix": "run it for all nodes: ./motley bootstrap --phase gpu_driver"}
    options = {
        entry["branch"]: {name: option(name, node, entry) for name, node in with_cards.items()} for entry in allowed
    }
    chosen = choose(allowed, options)
    if chosen is None:
        return refusal(allowed, options)
    suited = [entry for entry in catalogue["branches"] if not agreed_set or entry["set"] == agreed_set]
    return as_plan(led_to(chosen, options, suited), options, with_cards, catalogue, branch != "auto")


def choose(allowed: list[Branch], options: Options) -> Branch | None:
    """What works everywhere as it is, is left alone; else the best branch that every node can have."""
    possible = [entry for entry in allowed if all(one.do for one in options[entry["branch"]].values())]
    return next((entry for entry in possible if is_settled(entry, options)), next(iter(possible), None))


def is_settled(chosen: Branch, options: Options) -> bool:
    """Whether it is what all nodes have, and stays whatever the package sources offer."""
    branch = chosen["branch"]
    return all(one.do == "keep" and major(one.version) == branch for one in options[branch].values())


def led_to(chosen: Branch, options: Options, suited: list[Branch]) -> Branch:
    """The branch that all nodes really come to where the chosen one is only a name for it on some."""
    mine = options[chosen["branch"]]
    if not any(one.led for one in mine.values() if one.do == "install"):
        return chosen
    oldest = min((one.version for one in mine.values()), key=numbers)
    real = next((entry for entry in suited if not older(oldest, entry["least"])), chosen)
    options[real["branch"]] = mine
    return real


# -- one node --------------------------------------------------------------------------------------------------


def first_trouble(nodes: dict[str, NodeLook]) -> Refusal | None:
    """What no driver can put right: switched off, too old, or not what the inventory says."""
    checks = (switched_off, unservable, other_card)
    found = (check(name, node) for check in checks for name, node in nodes.items())
    return next(filter(None, found), None)


def unservable(name: str, node: NodeLook) -> Refusal | None:
    """Cards that no branch can serve."""
    for card in node["cards"]:
        kind = architectures.of_chip(card["device"])
        if not kind.served:
            error = (
                f"{name}: its {kind.title} card (10de:{card['device']}) has compute {kind.compute},"
                f" torch has code for {architectures.SERVED[0]} and newer"
            )
            fix = f"leave {name} out of hosts.yml, or give it motley_gpu_driver_manage: false to train on its processor"
            return {"error": error, "fix": fix}
    return None


def switched_off(name: str, node: NodeLook) -> Refusal | None:
    """The finding that the owner gave the desktop to the processor's graphics, and the card no power."""
    switch = node.get("switched_off", "")
    if not switch or node.get("title") == "none":
        return None
    what, fix = switched_off_fault(switch, name)
    return {"error": f"{name}: {what}", "fix": fix}


def other_card(name: str, node: NodeLook) -> Refusal | None:
    """What the inventory says of a machine is not what is on its bus: a typing error, or two machines mixed up."""
    title, cards = node.get("title", ""), node.get("cards", [])
    if title in ("", "none") or any(is_called(title, card) for card in cards):
        return None
    file = f"edit motley_gpu of {name} in {node.get('file') or 'hosts.yml'}"
    error = f"{name}: the inventory says motley_gpu: {title}, "
    if not cards:
        fix = f"see to the card's seat and power; or {file}: motley_gpu: none (it trains on its processor)"
        return {"error": f"{error}no NVIDIA card is on its bus", "fix": fix}
    there = " and ".join(
        f"{short(card.get('name', '')) or architectures.of_chip(card['device']).title} (10de:{card['device']})"
        for card in cards
    )
    right = next((f": motley_gpu: {short(card['name'])}" for card in cards if card.get("name")), "")
    return {"error": f"{error}on its bus is {there}", "fix": f"{file}{right}; or its address, if two were mixed up"}


def is_called(title: str, card: NamedCard) -> bool:
    """Whether a person may have meant this card: by its model, else by its architecture; in doubt yes."""
    wrote, found = model(title), model(short(card.get("name", "")))
    if wrote and found:
        return wrote == found
    meant, kind = architectures.of_name(title), architectures.of_chip(card["device"])
    return meant is None or kind.name == "unknown" or meant == kind


def short(name: str) -> str:
    """RTX 4070 Laptop, of NVIDIA GeForce RTX 4070 Laptop GPU and of GeForce RTX 4070 Max-Q / Mobile."""
    name = re.sub(r".*\[(.*)].*", r"\1", name)
    name = re.sub(r"\s*(Max-Q / Mobile|Mobile / Max-Q|Mobile|Max-Q)\b", " Laptop", name)
    return " ".join(re.sub(r"\b(NVIDIA|GeForce|GPU|Lite Hash Rate)\b", "", name).split())


def model(text: str) -> tuple[str, ...]:
    """What tells one card from another of its architecture: letter, number, Ti, Super. Empty: nothing to compare."""
    found = re.search(r"(?:(?<![a-z])([a-z]))?(\d{3,4})(?!\d)[ -]?(ti\b)?[ -]?(super\b)?", text.lower())
    return tuple(part or "" for part in found.groups()) if found else ()


def kinds_of(node: NodeLook) -> list[Architecture]:
    return [architectures.of_chip(card["device"]) for card in node["cards"]]


def flavours(node: NodeLook) -> list[bool]:
    """Open modules (True) or closed ones (False) that serve all of a machine's cards, the better first."""
    return [True] if any(kind.needs_open for kind in kinds_of(node)) else [True, False]


def option(name: str, node: NodeLook, branch: Branch) -> Option:
    """How this node comes to this branch."""
    fitting = flavours(node)
    least = max((branch["least"], *(kind.least_driver for kind in kinds_of(node))), key=numbers)
    installed = node["installed"]
    if installed and installed["complete"] and installed["open"] in fitting and not older(installed["version"], least):
        led = _led(node, branch["branch"]) if major(installed["version"]) == branch["branch"] else ""
        return Option(do="keep", open=installed["open"], version=installed["version"], led=led)
    if installed and not installed["packaged"]:
        why_not = f"{name} has driver {installed['version']} from NVIDIA's .run file, which cannot be replaced safely"
        return Option(why_not=why_not, fix=f"on {name}: sudo nvidia-uninstall, then run again")
    return _install(name, node, branch, fitting, least)


def _install(name: str, node: NodeLook, branch: Branch, fitting: list[bool], least: str) -> Option:
    offered = node["offered"].get(node.get("leads", {}).get(branch["branch"], branch["branch"]), {})
    for is_open in fitting:
        version = offered.get(word(is_open), "")
        if version and not older(version, least):
            return Option(do="install", open=is_open, version=version, led=_led(node, branch["branch"]))
    sources = node["source"] or "its package sources"
    if offered:
        found = ", ".join(f"{version} {kind}" for kind, version in offered.items())
        why_not = f"{name} needs {least} or newer with {word(fitting[0])} modules; {sources} have {found}"
    else:
        newest = max(node["offered"], key=int, default="")
        why_not = f"{name} is offered no driver {branch['branch']}" + (f", {sources} have {newest}" if newest else "")
        if node.get("apt_trouble"):
            why_not += f" (apt-get update says: {node['apt_trouble']})"
    return Option(why_not=why_not, fix=f"give {name} a package source that has it (docs/cards.md lists them)")


def _led(node: NodeLook, branch: str) -> str:
    led = node.get("leads", {}).get(branch)
    return f"{branch} only leads to {led} in {node['source'] or 'its package sources'}" if led else ""


# -- words -----------------------------------------------------------------------------------------------------


def as_plan(chosen: Branch, options: Options, nodes: dict[str, NodeLook], catalogue: Catalogue, asked: bool) -> Data:
    mine = options[chosen["branch"]]
    kinds = {word(one.open) for one in mine.values()}
    name = chosen["branch"] + ("-open" if kinds == {"open"} else "")
    where = "on all nodes" if len(nodes) > 1 else f"on {next(iter(nodes))}"
    because = [*_because_of_cards(mine, nodes), _because_of_torch(chosen, options, nodes, catalogue, asked)]
    return {
        **{key: chosen[key] for key in ("branch", "set", "cuda", "torch")},
        "reason": f"{titles(nodes)} → {name} {where} ({'; '.join(because)})",
        "settled": is_settled(chosen, options),
        "nodes": {
            node: {"do": one.do, "open": one.open, "version": one.version, "say": _say(one, chosen)}
            for node, one in mine.items()
        },
    }


def titles(nodes: dict[str, NodeLook]) -> str:
    """RTX 3070 Ti + RTX 5070 Ti, as the inventory calls them; else what the bus says."""
    named = []
    for node in nodes.values():
        title = node.get("title", "")
        known = title if title not in ("", "none") and len(node["cards"]) == 1 else ""
        named += [known or kind.title for kind in kinds_of(node)]
    return " + ".join(sorted(set(named)))


def _because_of_cards(mine: dict[str, Option], nodes: dict[str, NodeLook]) -> list[str]:
    need = sorted({kind.title for node in nodes.values() for kind in kinds_of(node) if kind.needs_open})
    reasons = [f"{' and '.join(need)} needs the open modules"] if need else []
    if len({one.open for one in mine.values()}) > 1:
        closed = ", ".join(node for node, one in mine.items() if not one.open)
        reasons.append(f"{closed} stays with the closed modules, which serve its card as well")
    return reasons


def _because_of_torch(
    chosen: Branch, options: Options, nodes: dict[str, NodeLook], catalogue: Catalogue, asked: bool
) -> str:
    best = catalogue["branches"][0]
    need = f"torch {chosen['torch']} needs ≥ {chosen['least']}"
    led = {one.led for one in options[chosen["branch"]].values() if one.do == "install"} - {""}
    if chosen == best:
        return "; ".join([*sorted(led), need])
    use = f"torch {chosen['torch']} of {chosen['set']}"
    if asked:
        return f"{use}, as you asked"
    if best["branch"] not in options:
        return f"{use}, as the other nodes have it"
    lacking = [one for one in options[best["branch"]].values() if not one.do]
    if lacking and not is_settled(chosen, options):
        return f"{use}, because {lacking[0].why_not}"
    there = "/".join(sorted({node["installed"]["version"] for node in nodes.values()}))
    more = f"torch {best['torch']} would need ≥ {best['least']}: motley_gpu_driver_branch={best['branch']}"
    return f"{use}, because {there} is there and works; {more}"


def _say(one: Option, chosen: Branch) -> str:
    verb = "keeps" if one.do == "keep" else "gets"
    newer = ", newer drivers serve as well" if major(one.version) != chosen["branch"] else ""
    led = f"; {one.led}" if one.led else ""
    return f"{verb} {one.version} ({word(one.open)} modules{newer}{led})"


def refusal(allowed: list[Branch], options: Options) -> Refusal:
    """The sentence about the best branch: it is what a person should fix."""
    first = next(one for one in options[allowed[0]["branch"]].values() if not one.do)
    branches = " or ".join(entry["branch"] for entry in allowed)
    return {"error": f"no driver {branches} serves all cards: {first.why_not}", "fix": first.fix}


def word(is_open: bool) -> str:
    return "open" if is_open else "closed"


def major(version: str) -> str:
    return str(version).split(".")[0]


# -- what else the role shapes ---------------------------------------------------------------------------------


def packages(plan_of_node: Data, branch: str, look: NodeLook, catalogue: Catalogue) -> Data:
    """What gpu_driver needs to know of names: the methods to get driver and modules, the safest first."""
    names = next(entry for entry in catalogue["names"] if entry["name"] == look["names"])
    flavour = word(plan_of_node["open"])

    def filled(text: str) -> str:
        return text.format(branch=branch, open="-open" if plan_of_node["open"] else "")

    drawing = look.get("draws", [])
    driver = [filled(name) for name in names["desktop" if look["desktop"] or drawing else "server"][flavour]]
    built = [filled(name) for name in names["dkms"][flavour]]
    sets: list[Data] = []
    if "signed" in names:
        stem = filled(names["signed"])
        follow = [f"{stem}-{track}" for track in look["kernel"]["tracks"]]
        if follow:
            sets.append({"how": "signed modules that follow the kernel", "signed": True, "packages": driver + follow})
        exact = f"{stem}-{look['kernel']['next']}"
        drawn = names["drawn"] if look["desktop"] or drawing else []
        bare = [filled(name) for name in (*names["bare"][flavour], *drawn)]
        same = {"package": exact, "needs": filled(names["modules_need"]), "driver": filled(names["version"])}
        how = "signed modules for this kernel"
        sets.append({"how": how, "signed": True, "packages": [*bare, exact], "same_version": same})
    sets.append({"how": "modules built here", "signed": False, "packages": driver + built + look["kernel"]["headers"]})
    first = [filled(names["pin"])] if "pin" in names else []
    foreign = [of_branch(name, branch) for name in drawing if ":" in name and "{branch}" in names["version"]]
    made = [{"same_version": {}, **one, "packages": [*one["packages"], *foreign]} for one in sets]
    return {"methods": made, "built": built, "first": first}


def record(plan_made: Data, recorded: Data) -> Data:
    """What later phases and limited runs need to know of the choice; nodes outside this run keep their place."""
    if not plan_made["nodes"] and recorded.get("nodes"):
        return recorded
    nodes = {**recorded.get("nodes", {}), **{name: plan_made["branch"] for name in plan_made["nodes"]}}
    return {**{key: plan_made[key] for key in ("branch", "set", "cuda", "torch")}, "nodes": dict(sorted(nodes.items()))}


def forget(recorded: Data, names: list[str]) -> Data:
    """The record without these nodes; nothing is agreed where no node is left."""
    left = {name: branch for name, branch in recorded.get("nodes", {}).items() if name not in names}
    return {**recorded, "nodes": left} if left else {}


def agreed_set(recorded: Data, names: list[str]) -> str:
    """The set of recorded nodes that are not in this run; empty where there are none."""
    return str(recorded.get("set", "")) if set(recorded.get("nodes", {})) - set(names) else ""


def _plain(value: Any) -> Any:
    """Ansible's texts carry their origin; a plan is plain data."""
    return json.loads(json.dumps(value))


def motley_gpu_plan(names: list[str], hostvars: Any, catalogue: Catalogue, branch: str, recorded: Data) -> Data:
    nodes: dict[str, NodeLook] = {}
    for name in names:
        look = hostvars[name].get("motley_gpu_driver_look") or {}
        if "cards" in look:
            also = {"title": str(hostvars[name].get("motley_gpu", "")), "file": hostvars[name].get("inventory_file")}
            nodes[name] = _plain({**look, **also})
    return plan(nodes, _plain(catalogue), branch, agreed_set(recorded, names))


def motley_gpu_waiting(names: list[str], hostvars: Any, for_what: str = "restart") -> list[str]:
    """Nodes whose driver needs a restart, or of them those that will wait at a passphrase."""
    return [name for name in names if (hostvars[name].get("motley_gpu_driver_done") or {}).get(for_what)]


class FilterModule:
    def filters(self) -> dict[str, Callable[..., object]]:
        return {
            "motley_gpu_plan": motley_gpu_plan,
            "motley_gpu_waiting": motley_gpu_waiting,
            "motley_gpu_packages": lambda one, *rest: packages(_plain(one), *map(_plain, rest)),
            "motley_gpu_forget": lambda recorded, names: forget(_plain(recorded), list(names)),
            "motley_gpu_only": lambda recorded, names: forget(
                _plain(recorded), [name for name in recorded.get("nodes", {}) if name not in names]
            ),
            "motley_gpu_record": lambda made, recorded: record(_plain(made), _plain(recorded)),
        }
