"""What of a data set is not trained on, or not held out, in words: a launch, the event log, the report and the model's
card say the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train.errors import BadInput
from train.files import write_atomic
from train.plan.settings.config import RunConfig

PASSED_OVER, TRAINED_ON = "passed_over", "trained_on"


def words_at(rows: Path) -> list[str]:
    """`rows`: the folder of a split."""
    return words(json.loads((rows.parent / "index.json").read_text()))


def note(folder: Path, passed_over: str) -> None:
    """`folder`: of the rows. What lay beside the data and is not in it, as it was when they were last asked for."""
    file = folder / "index.json"
    index = json.loads(file.read_text())
    if index.get(PASSED_OVER, "") != passed_over:
        write_atomic(file, json.dumps(index | {PASSED_OVER: passed_over}, indent=1).encode() + b"\n")


def words(index: Mapping[str, Any]) -> list[str]:
    tally, length = index.get("records", {}), index["row_length"] if "records" in index else 0
    found = [index[PASSED_OVER]] if index.get(PASSED_OVER) else []
    if tally.get("bad"):
        first = "".join(f", the first: {problem}" for problem in tally["first_bad"][:1])
        found.append(f"{tally['bad']} of {tally['records']} records are skipped{first}")
    if tally.get("truncated"):
        found.append(
            f"{tally['truncated']} records are cut at {length} tokens, of {tally['emptied']} no answer is left"
        )
    if not index["splits"]["eval"]["rows"] and index.get(TRAINED_ON, True):
        found.append("0 rows are held out: nothing shows whether it learns more than its own rows")
    return [f"data: {what}" for what in found]


def require_held_out(config: RunConfig, rows: int) -> None:
    if rows:
        return
    where, fix = f"rows: {config.dataset}", "give more data, or hold out a larger part of it: --set eval_fraction=0.2"
    if config.COMPARES:
        raise BadInput("no rows are held out, and trials are compared by them", where, fix)
    if config.patience:
        what = f"patience: {config.patience}, but no rows are held out that it could look at"
        raise BadInput(what, where, f"leave patience out, or {fix}")
