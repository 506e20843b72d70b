"""Machines and runs as tables of the live page: the same answers that status and runs print as text."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from console.electricity import number, watts_of
from console.report.machines import card_words
from console.report.svg_charts import colour, swatch
from console.text_layout import first
from console.watch.status import (
    KnownRun,
    by_run,
    does_in,
    gathered,
    is_script,
    measure_words,
    off_words,
    run_state,
    state_of,
)
from plugins.module_utils.motley.node_replies import Look, Runs
from train.runlog.state import Event

Row = dict[str, str | bool]
NOT_KNOWN: Row = {"card": "", "heat": "–", "checkpoint": "–", "free": "–", "next": ""}


def machines(names: Sequence[str], answers: Mapping[str, Look], silent: Mapping[str, str]) -> list[Row]:
    running = {name: look for name, look in answers.items() if look["on"]}
    states = {run: state_of(looks) for run, looks in by_run(running).items()}
    rows = []
    for index, name in enumerate(names):
        about: Row = NOT_KNOWN | {"name": name, "colour": swatch(colour(index)), "bad": name not in answers}
        if name in answers:
            step = states[answers[name]["run"]].last if name in running else {}
            rows.append(about | one_machine(name, answers[name], step))
        else:
            rows.append(about | {"does": off_words(name, silent[name], states), "next": f"wake {name}"})
    return rows


def one_machine(name: str, look: Look, step: Event) -> Row:
    view, gpus = look["now"], look["now"].get("gpus") or look["gpus"]
    celsius = [value for gpu in gpus if (value := number(gpu.get("temperature.gpu"))) is not None]
    watts = watts_of(gpus)
    heat = [f"{max(celsius):.0f} °C" if celsius else "", f"{watts:.0f} W" if watts is not None else ""]
    paused = f"paused {look['paused']}" if look.get("paused") else ""
    if look["on"]:
        does = does_in(step, name) if view.get("state") != "away" else ""
        why = view["aside"]["cause"] if view.get("aside") else str(view.get("reason") or "")
        words = [str(view.get("state") or "starting"), does or (first(why) if why else "")]
    else:
        words = [paused or "no run here"]
    return {
        "card": card_words(gpus) or "no graphics card",
        "does": " · ".join(filter(None, words)),
        "heat": " · ".join(filter(None, heat)) or "–",
        "checkpoint": f"step {look['checkpoint']}" if look["checkpoint"] and not is_script(look) else "–",
        "free": "–" if look["free_bytes"] is None else f"{look['free_bytes'] / 1e9:.0f} GB",
        "next": f"unpause {name}" if paused else "",
    }


def runs(answers: Mapping[str, Runs]) -> list[Row]:
    return [one_run(name, facts) for name, facts in gathered(answers).items()]


def one_run(name: str, facts: KnownRun) -> Row:
    state = run_state(facts)
    after = {"done": f"fetch --run {name}", "stopped": f"launch --resume {name}"}
    return {
        "name": name,
        "steps": "a script" if facts["script"] else f"{facts['step']} of {facts['steps'] or '?'}",
        "loss": measure_words(facts, 3),
        "state": state,
        "when": time.strftime("%d %b %Y, %H:%M", time.localtime(float(facts["time"]))),
        "disk": f"{facts['bytes'] / 1e6:.0f} MB",
        "machines": ", ".join(facts["nodes"]),
        "swept": " ".join(f"{key}={value}" for key, value in facts["swept"].items()),
        "next": "" if facts["script"] else after.get(state, ""),
    }
