"""./motley generate: many prompts answered by all machines, into one file here."""

from __future__ import annotations

import shutil
from pathlib import Path

from console import commands_in_pieces
from console.inventory.read import Inventory
from console.text_layout import say
from train.errors import BadInput
from train.plan.model import data_sets
from train.runlog import paths


def generate(
    inventory: Inventory, *, prompts: str, run: str, model: str, name: str, resume: str, out: str, results: Path,
    settings: list[str], nodes: str, **named: str,
) -> int:  # fmt: skip
    target = target_of(out, prompts)
    asked: dict[str, object] = {key: value for key, value in {**named, "nodes": nodes}.items() if value}
    runs = commands_in_pieces.known_runs(inventory)
    if resume:
        # The launch refuses a setting with which the run was not begun.
        given = {setting: value for setting, value in {"dataset": prompts, "model": model}.items() if value}
        asked, name = asked | {"recipe": "generate", "resume": resume, **given}, resume
    else:
        if not prompts:
            raise BadInput("what is to be answered?", fix="fix: ./motley generate --prompts FILE")
        of_run, base = ("", {"model": model}) if model else commands_in_pieces.trained(runs, run)
        name = name or commands_in_pieces.free_name(runs, f"{of_run or Path(model).name.lower()}-answers")
        asked |= {"recipe": "generate", "dataset": prompts, **base}
    if code := commands_in_pieces.run_it(inventory, name, asked, settings, results):
        return code
    answers_file = results / name / paths.GIVEN_ANSWERS / "answers.jsonl"
    if target:
        shutil.copyfile(answers_file, target)
    say(f"answers   {target or answers_file}")
    return 0


def target_of(out: str, prompts: str) -> Path | None:
    """Where a copy goes; BadInput before anything is launched where it cannot."""
    if not out:
        return None
    file = Path(out).expanduser()
    if file.is_dir() or not file.parent.is_dir():
        raise BadInput(f"out: {out} is no file in a folder that is there", fix="fix: --out ./answers.jsonl")
    place = file.resolve()
    if any(source == place or (source in place.parents and file.exists()) for source in sources_of(prompts)):
        raise BadInput(f"out: {out} has the prompts, which would be lost", fix="fix: --out ./answers.jsonl")
    return file


def sources_of(prompts: str) -> list[Path]:
    """The files and folders that are named, without what of them is taken."""
    entries = [prompts] if data_sets.is_here(prompts) else prompts.split(",")
    names = [data_sets.name_of(entry.strip(), Path()) for entry in entries if entry.strip()]
    return [Path(name).expanduser().resolve() for name in names]
