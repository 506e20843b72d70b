"""Work that comes in pieces on three machines of speeds 4:2:1, and on each of them alone.

    make bench PARTS=pieces
    python -m tests.bench.pieces generate --repeats 1

The machines are processes here, and their speeds are pretended: each token of each answer, each request of a task and
each trial takes so long, whatever is made beside it (tests/train/broken.py). First all three work on one list, then
each alone on its own, at the same time.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.page import Figures, bench, row, spread
from tests.bench.pretrain import PYTHON
from tests.support.training import REPOSITORY
from train.runlog import paths
from train.runlog.tail import read

NAME = "pieces"
SPEEDS = (4, 2, 1)
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


@dataclass
class Machines:
    """One run of some processes, with the given speeds."""

    home: Path
    speeds: tuple[int, ...]
    settings: dict[str, Any]
    pretended: str = "pretended_speed"

    def __post_init__(self) -> None:
        port, self.processes = 30_000 + secrets.randbelow(2_700), []
        for rank, speed in enumerate(self.speeds):
            own = self.home / f"node-{rank}"
            own.mkdir(parents=True)
            words = [f"--{name.replace('_', '-')}={value}" for name, value in self.settings.items()]
            env = os.environ | {
                "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(REPOSITORY), "LOCAL_RANK": "0",
                "MOTLEY_NODE": f"node-{rank}", "RANK": str(rank), "WORLD_SIZE": str(len(self.speeds)),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
            }  # fmt: skip
            command = [
                str(PYTHON),
                "tests/train/broken.py",
                f"{self.pretended}={speed}",
                "run",
                *words,
                f"--home={own}",
            ]
            with (own / "out.txt").open("w") as out:
                self.processes.append(subprocess.Popen(command, cwd=REPOSITORY, env=env, stdout=out, stderr=out))

    def done(self) -> list[Piece]:
        """All pieces, once all are done."""
        for rank, process in enumerate(self.processes):
            if process.wait():
                raise SystemExit((self.home / f"node-{rank}/out.txt").read_text()[-3000:])
        events = read(self.home / "node-0/logs/runs/run/events.jsonl")
        record = read(self.home / "node-0/models/checkpoints/run" / paths.PIECES)
        what = {each["piece"]["number"]: each["piece"]["what"] for each in record}
        return [
            Piece(event["node"], event["time"] - event["step_s"], event["time"], size_of(what[event["piece"]]))
            for event in events
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
        settings = {
            "recipe": "generate", "model": "tiny", "run": "run", "max_new_tokens": TOKENS, "max_seq_length": 96,
            "piece": ANSWERS,
        }  # fmt: skip
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
        home, settings = Path(made), {"recipe": "evaluate", "model": "tiny", "run": "run"}
        return measured(home, lambda count: settings | questions(home, count * DOCUMENTS), "pretended_reading")


def sweep(_: None) -> Figures:
    """Trials that only take their time; Optuna proposes them for real."""
    with tempfile.TemporaryDirectory() as made:
        settings = {
            "recipe": "sweep", "model": "tiny", "run": "run", "max_seq_length": 96, "prune": "off",
            "search": "learning_rate=1e-5..1e-1:log lora_r=4,8,16",
        }  # fmt: skip
        return measured(Path(made), lambda count: settings | {"trials": count}, "pretended_trials")


def measured(home: Path, settings_of: Callable[[int], dict[str, Any]], pretended: str = "pretended_speed") -> Figures:
    together = Machines(home / "together", SPEEDS, settings_of(PIECES), pretended).done()
    alone = [
        Machines(home / f"alone-{at}", (speed,), settings_of(count), pretended)
        for at, (speed, count) in enumerate(zip(SPEEDS, OF_EACH, strict=True))
    ]
    rates = [per_s(run.done()) for run in alone]
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


def table(found: dict[str, list[Figures]]) -> list[str]:
    lines = ["| pieces at speeds 4:2:1 | measured | aim |", "| --- | --- | --- |"]
    for part, title in TITLES.items():
        if runs := found.get(part):
            of_sum = [run["together"] / sum(run["alone"]) for run in runs]
            lines += [
                f"| {title}, of the three alone added | {spread(of_sum, '{:.0%}', 'runs')} | ≥ 92 % |",
                row(
                    "… machines without work until the last two pieces",
                    [run["idle"] for run in runs],
                    "{:.1%}",
                    "≤ 5 %",
                ),
                f"| … pieces of each | {' : '.join(map(str, runs[-1]['made']))} |  |",
            ]
    return lines


def main() -> int:
    return bench(__doc__, NAME, nullcontext(), PARTS, table)


if __name__ == "__main__":
    sys.exit(main())
