"""Commands that are a run whose work comes in pieces: launched, watched, and what came of it is brought here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from console import launch_playbook, while_rented
from console.extra_vars import extra_vars, values_of
from console.fetch import fetch
from console.infra.node import ask_all, from_inventory
from console.inventory.read import Inventory
from console.inventory.what_is_wrong import nearest
from console.text_layout import say
from console.watch.status import KnownRun, gathered, launched_as
from train.errors import BadInput


def known_runs(inventory: Inventory) -> dict[str, KnownRun]:
    """The runs of the nodes that answer, by name, with how each was launched."""
    answers, _ = ask_all(from_inventory(inventory), lambda node: node.runs())
    return gathered(answers)


def trained(runs: Mapping[str, KnownRun], run: str) -> tuple[str, dict[str, object]]:
    """A run with an adapter, the newest one where none is named, and the settings by which its model is found again."""
    usable = [name for name, facts in runs.items() if facts["done"] and "model" in launched_as(facts)]
    if run and run not in runs:
        fix = nearest(run, runs, otherwise="./motley runs shows which there are")
        raise BadInput(f"no node that answers has a run '{run}'", fix=f"fix: {fix}")
    if run and run not in usable:
        raise BadInput(f"run {run} is not done, or has no base model", fix="fix: ./motley runs shows which are done")
    if not usable:
        raise BadInput("no node that answers has a run that is done", fix="fix: --model NAME asks a model as it is")
    name = run or next((name for name in usable if has_adapter(launched_as(runs[name]))), usable[0])
    launched = launched_as(runs[name])
    if not has_adapter(launched):
        raise BadInput(
            f"run {name} has made no adapter that writes",
            fix="fix: --model FOLDER, where ./motley fetch has brought it",
        )
    kept = ("load_in", "precision")
    base = {setting: launched[setting] for setting in kept if setting in launched}
    return name, {"model": launched["model"], "adapter": name} | base


def has_adapter(launched: Mapping[str, object]) -> bool:
    """Whether it has made one that writes: a reward model gives scores."""
    writes = launched.get("method") != "full" and launched.get("loss") != "reward"
    return writes and launched.get("recipe", "sft") in ("sft", "preference", "grpo")


def free_name(runs: Mapping[str, KnownRun], wanted: str) -> str:
    names = (f"{wanted}-{number}" if number > 1 else wanted for number in range(1, len(runs) + 2))
    return next(name for name in names if name not in runs)


def run_it(inventory: Inventory, run: str, settings: Mapping[str, object], more: list[str], results: Path) -> int:
    """Launches the run, watches it and fetches what it has made; 0 only where that is here. `more`: settings as they
    were typed."""
    if "run" in values_of(more):
        raise BadInput("run: its name is given with --as", fix=f"fix: --as {values_of(more)['run']}")
    words = extra_vars([json.dumps({**settings, "run": run}), *more])
    with while_rented.used(inventory):  # a rented machine is given back behind it: all is fetched before
        if code := launch_playbook.launch(inventory, words):
            return code
        facts = known_runs(inventory).get(run)
        if facts and facts["done"]:
            return fetch(inventory, run, results)
    is_running = facts and facts["on"]
    say(f"it is still running; when it is done: ./motley fetch --run {run}" if is_running else f"{run} is not done")
    return 1
