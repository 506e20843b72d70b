"""What of a data set is not trained on, or not held out, in words: a launch, the event log, the report and the model's
card say the same."""

from __future__ import annotations

import json
from pathlib import Path

from train.data.index import Index
from train.errors import BadInput
from train.files import write_atomic
from train.plan.settings.read_settings import RunConfig

TRAINED_ON = "trained_on"


def words_at(rows: Path) -> list[str]:
    """`rows`: the folder of a split."""
    return words(json.loads((rows.parent / "index.json").read_text()))


def note(folder: Path, passed_over: str) -> None:
    """`folder`: of the rows. What lay beside the data and is not in it, as it was when they were last asked for."""
    file = folder / "index.json"
    index = json.loads(file.read_text())
    if index.get("passed_over", "") != passed_over:
        write_atomic(file, json.dumps(index | {"passed_over": passed_over}, indent=1).encode() + b"\n")


def words(index: Index) -> list[str]:
    lost = [index["passed_over"]] if index.get("passed_over") else []
    tally = index.get("records")
    if tally and tally["bad"]:
        first = "".join(f", the first: {problem}" for problem in tally["first_bad"][:1])
        lost.append(f"{tally['bad']} of {tally['records']} records are skipped{first}")
    if tally and tally["truncated"]:
        no_answer = f", of {tally['emptied']} no answer is left" if tally["emptied"] else ""
        lost.append(f"{tally['truncated']} records are cut at {index['row_length']} tokens{no_answer}")
    if not index["splits"]["eval"]["rows"] and index.get("trained_on", True):
        lost.append("0 rows are held out: nothing shows whether it learns more than its own rows")
    return [f"data: {what}" for what in lost]


def require_held_out(config: RunConfig, rows: int) -> None:
    if rows:
        return
    where, fix = f"rows: {config.dataset}", "give more data, or hold out a larger part of it: --set eval_fraction=0.2"
    if config.COMPARES:
        raise BadInput("no rows are held out, and trials are compared by them", where, fix)
    if config.patience:
        what = f"patience: {config.patience}, but no rows are held out that it could look at"
        raise BadInput(what, where, f"leave patience out, or {fix}")
