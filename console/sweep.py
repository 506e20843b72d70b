"""./motley sweep: many trials over all machines, each on one of them, to find the best settings."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from console import commands_in_pieces, launch_commands, launch_playbook, launch_request, while_rented
from console.extra_vars import values_of
from console.hub import FETCHED
from console.inventory.read import Inventory
from console.report.trials import table_lines
from console.text_layout import say
from train.errors import BadInput
from train.plan.settings import request
from train.plan.settings.ranges import is_search
from train.runlog import paths, trials

SHOWN = 10
"""The best trials, in the terminal; the report has all."""


def sweep(inventory: Inventory, *, results: Path, then: str, trials: str, grid: bool, prune: str, **asked: Any) -> int:
    asked = launch_commands.with_file(**asked)
    named = {name: value for name, value in asked.items() if name not in ("settings", "vault", "verbose")}
    named |= {"trials": trials, "grid": "true" if grid else "", "prune": prune}
    typed = dict(pair.split("=", 1) for pair in launch_commands.pairs_of(named))
    values = as_sweep(values_of(asked["settings"], read_files=True) | typed)
    if "resume" not in values:
        checked(values)
    run = str(values.get("resume") or values.get("run") or "")
    if not run:
        wanted = f"{Path(str(values.get('model', values['trains']))).name.lower()}-sweep"
        run = commands_in_pieces.free_name(commands_in_pieces.known_runs(inventory), wanted)
    if code := commands_in_pieces.run_it(inventory, run, values, [], results):
        if then and run in commands_in_pieces.known_runs(inventory):
            say(f"who watches its end trains the best one: ./motley sweep --resume {run} --then train")
        return code
    return ended(inventory, results / run / paths.SWEEP, then)


def as_sweep(values: Mapping[str, Any]) -> dict[str, object]:
    """What was asked for as a launch, with every setting that has several values as part of the search."""
    tried = {
        name: launch_commands.as_text(value)
        for name, value in values.items()
        if name in request.MATH and name != "search" and is_search(name, launch_commands.as_text(value))
    }
    if values.get("resume"):
        if tried:
            fix = "leave it out, or leave resume out"
            raise BadInput(f"{next(iter(tried))}: a sweep that continues tries what it tried", fix=fix)
        return {**values, "recipe": "sweep"}
    words = [
        *([str(values["search"])] if values.get("search") else []),
        *(shlex.quote(f"{n}={v}") for n, v in tried.items()),
    ]
    if not words:
        raise BadInput("nothing is tried: every setting has one value", fix="--set learning_rate=1e-5..1e-3:log")
    recipe = str(values.get("recipe") or "sweep")
    trains = str(values.get("trains") or "sft") if recipe == "sweep" else recipe
    kept = {name: value for name, value in values.items() if name not in tried}
    return {**kept, "recipe": "sweep", "trains": trains, "search": " ".join(words)}


def checked(values: Mapping[str, Any]) -> None:
    """BadInput before anything is connected to."""
    request.read(
        dict(values), FETCHED, also=launch_request.LAUNCH_ONLY, required="model,dataset,search", what="variable"
    )


def ended(inventory: Inventory, folder: Path, then: str) -> int:
    """Shows what came of it, and trains the best one over all machines where that was asked for."""
    for line in table_lines(folder, SHOWN):
        say(line)
    file = folder / trials.BEST_RUN
    if not file.exists():
        say("no trial came to its end, so there is no best one")
        return 1
    if not then:
        say(f"the best one over all machines: ./motley launch -f {file}")
        return 0
    run = f"{folder.parent.name}-best"
    say(f"{run} trains the best one's settings over all machines")
    words = launch_commands.launch_words(run_file=str(file), settings=[json.dumps({"run": run})])
    with while_rented.used(inventory):
        return launch_playbook.launch(inventory, words)
