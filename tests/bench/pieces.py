"""Work that comes in pieces on three machines of speeds 4:2:1, and on each of them alone.

    make bench PARTS=pieces
    python -m tests.bench.pieces generate --repeats 1

Their speeds are pretended (machines.py). First all three work on one list, then each alone on its own, all at once.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.machines import SPEEDS, Machines
from tests.bench.page import Figures, Found, bench, row
from tests.support.tables import table as table_of
from train.runlog import paths
from train.runlog.tail import read

NAME = "pieces"
PIECES, OF_EACH = 84, (48, 24, 12)
ANSWERS, TOKENS = 8, 12
DOCUMENTS = 16
"""Of a block (train/recipes/evaluate/requests.py)."""
TASK = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {name}.jsonl}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{q}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
"""
LAST = 2
"""Until so many pieces are left, nobody should wait."""


@dataclass(frozen=True)
class Piece:
    node: str
    begun: float
    done: float
    size: int
    """How much of the work it is."""


def done(run: Machines) -> list[Piece]:
    """All pieces, once all are done."""
    for rank, process in enumerate(run.processes):
        if process.wait():
            raise SystemExit(run.said(rank))
    record = read(run.home / "node-0/models/checkpoints/run" / paths.PIECES)
    what = {each["piece"]["number"]: each["piece"]["what"] for each in record}
    return [
        Piece(event["node"], event["time"] - event["step_s"], event["time"], size_of(what[event["piece"]]))
        for event in run.events()
        if event["event"] == "piece"
    ]


def size_of(what: dict[str, Any]) -> int:
    return int(what["end"] - what["first"]) if "end" in what else 1


def prompts(folder: Path, count: int) -> Path:
    file = folder / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"What is {i} plus {3 * i}?"}) + "\n" for i in range(count)))
    return file


def generate(_: None) -> Figures:
    """A tiny model's answers, all of the same length."""
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        settings = {"recipe": "generate", "max_new_tokens": TOKENS, "max_seq_length": 96, "piece": ANSWERS}
        return measured(home, lambda count: settings | {"dataset": prompts(home, count * ANSWERS)})


def questions(folder: Path, count: int) -> dict[str, str]:
    """A task of so many documents, and where its files are."""
    line = {"q": "What is 3 plus 4?", "choices": ["7", "8", "nine", "a cat"], "answer": 0}
    (folder / f"sums{count}.jsonl").write_text(f"{json.dumps(line)}\n" * count)
    (folder / f"sums{count}.yaml").write_text(TASK.format(name=f"sums{count}"))
    return {"dataset": str(folder), "tasks": f"sums{count}.yaml"}


def evaluate(_: None) -> Figures:
    """A tiny model is asked a task of as many blocks of documents."""
    with tempfile.TemporaryDirectory() as made:
        home, settings = Path(made), {"recipe": "evaluate"}
        return measured(home, lambda count: settings | questions(home, count * DOCUMENTS), "pretended_reading")


def sweep(_: None) -> Figures:
    """Trials that only take their time; Optuna proposes them for real."""
    search = "learning_rate=1e-5..1e-1:log lora_r=4,8,16"
    settings = {"recipe": "sweep", "max_seq_length": 96, "prune": "off", "search": search}
    with tempfile.TemporaryDirectory() as made:
        return measured(Path(made), lambda count: settings | {"trials": count}, "pretended_trials")


def measured(home: Path, settings_of: Callable[[int], dict[str, Any]], pretended: str = "pretended_speed") -> Figures:
    def begun(name: str, speeds: tuple[int, ...], count: int) -> Machines:
        return Machines(home / name, speeds, {"model": "tiny"} | settings_of(count), pretended)

    together = done(begun("together", SPEEDS, PIECES))
    pairs = zip(SPEEDS, OF_EACH, strict=True)
    alone = [begun(f"alone-{at}", (speed,), count) for at, (speed, count) in enumerate(pairs)]
    rates = [per_s(done(run)) for run in alone]
    return {"together": per_s(together), "alone": rates, "idle": idle(together), "made": made_by(together)}


def per_s(pieces: list[Piece]) -> float:
    return sum(one.size for one in pieces) / (max(one.done for one in pieces) - min(one.begun for one in pieces))


def idle(pieces: list[Piece]) -> float:
    """The part of their time in which machines do nothing, until the last two pieces are begun."""
    began, end = min(one.begun for one in pieces), sorted(one.begun for one in pieces)[-LAST]
    nodes = {one.node for one in pieces}
    busy = sum(max(0.0, min(one.done, end) - one.begun) for one in pieces)
    return 1 - busy / (len(nodes) * (end - began))


def made_by(pieces: list[Piece]) -> list[int]:
    names = sorted({one.node for one in pieces})
    return [sum(one.node == name for one in pieces) for name in names]


PARTS: dict[str, Callable[[None], Figures]] = {"generate": generate, "evaluate": evaluate, "sweep": sweep}
TITLES = {"generate": "answers (`generate`)", "evaluate": "tasks (`eval --tasks`)", "sweep": "trials (`sweep`)"}


IDLE = "… machines without work until the last two pieces"


def table(found: Found) -> list[str]:
    rows = []
    for part, title in TITLES.items():
        of_sum = [run["together"] / sum(run["alone"]) for run in found[part]]
        rows += [
            row(f"{title}, of the three alone added", of_sum, "{:.0%}", "≥ 92 %"),
            row(IDLE, [run["idle"] for run in found[part]], "{:.1%}", "≤ 5 %"),
            ("… pieces of each", " : ".join(map(str, found[part][-1]["made"])), ""),
        ]
    return table_of(("pieces at speeds 4:2:1", "measured", "aim"), rows)


if __name__ == "__main__":
    sys.exit(bench(__doc__, NAME, nullcontext(), PARTS, table))
