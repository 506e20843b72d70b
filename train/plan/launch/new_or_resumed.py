"""Which run is meant: a new one, one that continues, or another one's continuation."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from train.errors import BadInput
from train.nearest_word import meant
from train.plan.machines.facts import FoundRun, NodeFacts
from train.plan.model import data_sets
from train.plan.placement.decisions import NAMES
from train.plan.run_name import as_name
from train.plan.settings import own_recipe
from train.plan.settings.file_settings import PLACES
from train.plan.settings.read_settings import Settings
from train.plan.settings.request import MATH, Request, read
from train.plan.settings.rewards import file_of


@dataclass(frozen=True, slots=True)
class Known:
    """A run that some node knows."""

    launched: Mapping[str, Any]
    step: int
    done: bool
    from_here: Mapping[str, Any] = field(default_factory=dict)
    """How this computer launched it last, by its own record."""
    begun_again: int = 0
    """How many times it was."""


def known_runs(nodes: Mapping[str, NodeFacts], from_here: Mapping[str, Any]) -> dict[str, Known]:
    """The runs by name, from all nodes: the furthest step, and the settings wherever they are written. A node that was
    away when a run was begun again has the one before, which does not count."""
    again = {name: begun_again(launched) for name, launched in from_here.items()}
    found = sorted(((name, run) for node in nodes.values() for name, run in node.runs.items()), key=itemgetter(0))
    for name, run in found:
        again[name] = max(again.get(name, 0), begun_again(run.launched))
    runs: dict[str, Known] = {}
    for name, run in found:
        was = runs.setdefault(name, Known({}, 0, False, from_here.get(name, {}), again[name]))
        if not is_older(run, again[name]):
            launched, step = was.launched or run.launched, max(was.step, run.step)
            runs[name] = replace(was, launched=launched, step=step, done=was.done or run.done)
    return {name: run if run.launched else replace(run, launched=run.from_here) for name, run in runs.items()}


def begun_again(launched: Mapping[str, Any]) -> int:
    times = launched.get("begun_again")
    return times if isinstance(times, int) else 0


def is_older(run: FoundRun, times: int) -> bool:
    return bool(run.launched) and begun_again(run.launched) < times


def settings_before(known: Known) -> Settings:
    """The settings it was launched with, and what was decided for it then: other nodes must not decide otherwise."""
    everything = known.launched.get("all", {})
    decided = {name: everything[name] for name in NAMES if everything.get(name, "auto") != "auto"}
    return {**decided, **known.launched.get("given", {})} if "given" in known.launched else {}


def choose_run(request: Request, runs: dict[str, Known]) -> Request:
    """`resume: NAME` takes that run's settings; a run without a name gets that of model and data, with a number."""
    resume = request.config.resume
    if resume not in ("auto", "never"):
        return resumed(resume, request, runs)
    from_start = resume == "never"  # nodes get `auto` in any case: a restart within the run must continue it
    name = request.config.run if request.given.get("run") else free_name(request, runs, from_start=from_start)
    if from_start:
        wanted = replace(read({**request.given, "run": name, "resume": "auto"}, request.home), from_start=True)
        return replace(wanted, begun_again=1 + runs[name].begun_again) if name in runs else wanted
    known = runs.get(name)
    if known and known.done:
        raise BadInput(
            f"run: '{name}' is done", fix=f"fix: --run {unused(name, runs)}, or begin it again: --resume never"
        )
    if known:
        refuse_changes(request, known, unused(name, runs))
    before = settings_of_before(name, known, request.given) if known else {}
    return begun(request, {**before, **request.given, "run": name, "resume": "auto"}, known)


def settings_of_before(name: str, known: Known, given: Settings) -> Settings:
    """A node's word alone chooses no file of this computer: it would be sent there. Nor another setting of a run that
    this computer has launched."""
    values, launched = settings_before(known), known.from_here.get("given", {})
    for place in PLACES:
        value = values.get(place)
        if place not in given and value and value != launched.get(place) and is_here(place, str(value)):
            raise BadInput(
                f"{place}: the nodes say that {name} was launched with {value}; this computer did not launch it so, "
                "and has a file or folder of that name, which the nodes would get",
                fix=f"fix: if that is what you want: --set {place}={value}",
            )
    return {**values, **launched}


def is_here(place: str, value: str) -> bool:
    """Whether it leads to a file or folder of this computer."""
    if place == "dataset":
        return bool(data_sets.files_here(value))
    file = file_of(value) if place == "rewards" else value
    return bool(file) and Path(file).expanduser().exists()


def resumed(name: str, request: Request, runs: dict[str, Known]) -> Request:
    if name not in runs:
        near = meant(name, runs)
        hint = f"did you mean {near}?" if near else f"known are: {', '.join(runs) or 'none yet'}"
        raise BadInput(f"resume: no node knows a run '{name}'", fix=f"fix: {hint}")
    known = runs[name]
    refuse_changes(request, known, unused(name, runs))
    values = {**settings_of_before(name, known, request.given), **request.given}
    if not settings_before(known) and "model" not in values:
        raise BadInput(
            f"resume: how {name} was launched is not written down any more", fix="fix: give its settings again"
        )
    if request.given.get("run") not in (None, name):  # a branch: its own files, from the other one's last step on
        why = f"begins where {name} is, at step {known.step}"
        branch = replace(begun(request, values, known, why=why), begun_again=0)
        if branch.config.IN_PIECES:
            raise BadInput(
                f"resume: {name} is done in pieces, which no other run takes over",
                fix=f"fix: --resume {name} alone, or --run {branch.config.run} alone for a new one",
            )
        return branch
    del values["resume"]
    return begun(request, {**values, "run": name}, known)


def begun(request: Request, values: Settings, known: Known | None, *, why: str = "") -> Request:
    step = known.step if known else 0
    why = why or (f"continues after step {step}" if step else "")
    times = known.begun_again if known else 0
    continued = replace(read(values, request.home), step=step, why=why, begun_again=times)
    if known and (changed := conflicts(continued, ["recipe", "rewards_hash", "adapter_hash"], known)):
        raise BadInput(changed, fix="fix: put the old file back, or begin a new run with another name")
    return continued


def refuse_changes(request: Request, known: Known, free: str) -> None:
    if changed := conflicts(request, request.given, known):
        resume = request.config.resume
        instead = "" if resume in ("auto", "never") else f" in place of --resume {resume}"
        raise BadInput(changed, fix=f"fix: leave that out, or begin a new run: --run {free}{instead}")


def conflicts(request: Request, names: Iterable[str], known: Known) -> str:
    """The first setting that decides the loss curve and is not what the run began with, in a sentence; else empty."""
    before, now = known.launched.get("all", {}), request.settings
    if "recipe" in names and own_recipe.is_file(now["recipe"]) and own_recipe.is_file(before.get("recipe", "")):
        if now["recipe_hash"] != before["recipe_hash"]:
            return (
                f"recipe: {now['recipe']} is not the file that the run was launched with: another file is another run"
            )
        before = before | {"recipe": now["recipe"]}  # the same file in another place
    if "rewards_hash" in names and now.get("rewards_hash") != before.get("rewards_hash"):
        return "rewards: they are not those that the run was launched with: others make another run"
    if "adapter_hash" in names and now.get("adapter_hash", "") != before.get("adapter_hash", ""):
        return "adapter: it is not the one that the run began with: another one makes another run"
    for name in dict.fromkeys((*MATH, *request.config.scoped("math"), "model", "dataset")):
        if name in names and name in now and name in before and now[name] not in (before[name], "auto"):
            return f"{name}: the run was launched with {before[name]}, {now[name]} is asked for"
    return ""


def free_name(request: Request, runs: dict[str, Known], *, from_start: bool) -> str:
    """MODEL-DATA; the same again continues where it stopped, anything else gets the next number."""
    stem = as_name(f"{request.model.name}-{request.dataset.name}").lower()

    def is_free(name: str) -> bool:
        taken = runs.get(name)
        return taken is None or not (from_start or taken.done or conflicts(request, request.settings, taken))

    return next(filter(is_free, itertools.chain([stem], (f"{stem}-{count}" for count in itertools.count(2)))))


def unused(name: str, runs: dict[str, Known]) -> str:
    stem = re.sub(r"-\d+$", "", name)
    return next(f"{stem}-{count}" for count in itertools.count(2) if f"{stem}-{count}" not in runs)
