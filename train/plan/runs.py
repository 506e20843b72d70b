"""Which run is meant: a new one, one that goes on, or another one's continuation."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from train.plan import decide
from train.plan.names import as_name


@dataclass(kw_only=True, slots=True)
class Run:
    """The run that is meant: its name, its settings, and whether it goes on."""

    name: str
    values: dict[str, Any]
    why: str
    step: int = 0
    anew: bool = False
    """Whether files of an earlier run of this name are to be moved aside first."""


@dataclass(frozen=True, slots=True)
class Known:
    """A run that some node knows."""

    launched: dict[str, Any]
    step: int
    done: bool


def known_runs(looks: Mapping[str, Any]) -> dict[str, Known]:
    """By name, from all nodes: the furthest step, and the settings wherever they are written."""
    found: dict[str, Known] = {}
    for look in looks.values():
        for name, run in look["runs"].items():
            was = found.get(name, Known({}, 0, False))
            found[name] = Known(was.launched or run["launched"], max(was.step, run["step"]), was.done or run["done"])
    return dict(sorted(found.items()))


def settings_before(known: Known) -> dict[str, Any]:
    """As it was launched, and what was decided for it then: other nodes must not decide otherwise."""
    everything = known.launched.get("all", {})
    decided = {name: everything[name] for name in decide.NAMES if everything.get(name, "auto") != "auto"}
    return {**decided, **known.launched.get("given", {})} if "given" in known.launched else {}


Chosen = tuple["Run | None", list[str]]
"""A run, or what stands against it."""


def choose_run(values: dict[str, Any], about: dict[str, Any], runs: dict[str, Known]) -> Chosen:
    """`resume: NAME` takes that run's settings; a run without a name gets that of model and data, with a number."""
    resume = str(values.get("resume", "auto"))
    if resume not in ("auto", "never"):
        return resumed(resume, values, about, runs)
    anew = resume == "never"
    name = str(values.get("run") or free_name(values, about, runs, anew=anew))
    known = None if anew else runs.get(name)
    if known and known.done:
        return None, [f"run: '{name}' is done\nfix: -e run={unused(name, runs)}, or begin it anew: -e resume=never"]
    if known and (changed := conflicts(values, about, known)):
        return None, [f"{changed}\nfix: leave that out, or begin a new run: -e run={unused(name, runs)}"]
    before, step = (settings_before(known), known.step) if known else ({}, 0)
    # A restart within the run must go on, not begin anew: nodes are told `auto` in any case.
    merged = {**before, **values, "run": name, "resume": "auto"}
    return Run(name=name, values=merged, why=start_of(step), step=step, anew=anew), []


def resumed(name: str, values: dict[str, Any], about: dict[str, Any], runs: dict[str, Known]) -> Chosen:
    if name not in runs:
        near = difflib.get_close_matches(name, runs, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are: {', '.join(runs) or 'none yet'}"
        return None, [f"resume: no node knows a run '{name}'\nfix: {hint}"]
    known = runs[name]
    own = {key: value for key, value in values.items() if key != "resume"}
    if changed := conflicts(own, about, known):
        return None, [f"{changed}\nfix: leave that out, or begin a new run: -e run={unused(name, runs)}"]
    merged = {**settings_before(known), **own}
    if "model" not in merged:
        return None, [f"resume: how {name} was launched is not written down any more\nfix: give its settings again"]
    if values.get("run") not in (None, name):  # a branch: its own files, from the other one's last step on
        why = f"begins where {name} is, at step {known.step}"
        return Run(name=str(values["run"]), values={**merged, "resume": name}, why=why, step=known.step), []
    return Run(name=name, values={**merged, "run": name}, why=start_of(known.step), step=known.step), []


def start_of(step: int) -> str:
    return f"goes on after step {step}" if step else "from the start"


def conflicts(values: dict[str, Any], about: dict[str, Any], known: Known) -> str:
    """A setting that decides the loss curve and is not what the run began with."""
    before = known.launched.get("all", {})
    for name in (*about["math"], "model", "dataset"):
        if name in values and name in before and about["all"][name] not in (before[name], "auto"):
            return f"{name}: the run was launched with {before[name]}, {about['all'][name]} is asked for"
    return ""


def free_name(values: dict[str, Any], about: dict[str, Any], runs: dict[str, Known], *, anew: bool) -> str:
    """MODEL-DATA; the same again goes on where it stopped, anything else gets the next number."""
    stem = as_name(f"{about['model']['name']}-{about['dataset']['name']}").lower()
    for count in itertools.count(1):
        name = stem if count == 1 else f"{stem}-{count}"
        known = runs.get(name)
        if known is None or (not anew and not known.done and not conflicts(about["all"], about, known)):
            return name
    raise AssertionError


def unused(name: str, runs: dict[str, Known]) -> str:
    stem = re.sub(r"-\d+$", "", name)
    return next(f"{stem}-{count}" for count in itertools.count(2) if f"{stem}-{count}" not in runs)
