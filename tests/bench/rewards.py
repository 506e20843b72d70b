"""Training by rewards on three machines of speeds 4:2:1, and each of them alone, in turns of some steps.

    make bench PARTS=rewards
    python -m tests.bench.rewards together --repeats 1

Their speeds are pretended (machines.py). Who is alone has its part of the rows, and all three are at it at the same
time. All runs stay loaded, and who has no turn is stopped.
"""

from __future__ import annotations

import contextlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.bench.machines import SPEEDS, Machines
from tests.bench.page import Figures, Found, bench, every, row
from tests.bench.trainer import PYTHON
from tests.support.cluster import REPOSITORY
from tests.support.tables import table as table_of
from train.runlog.state import history

NAME = "rewards"
ROWS, ALONE = 64, (36, 20, 8)
STEPS, SETTLE, TURNS = 6, 8, 3
TOKENS = 40
HANGS_S = 300.0


class Learners(Machines):
    """They make answers, and train on them."""

    def __init__(self, data: Path, home: Path, speeds: tuple[int, ...], rows: int) -> None:
        self.rows = rows
        options = {
            "recipe": "grpo", "model": "tiny", "dataset": data, "rewards": data.parent / "rewards.py",
            "max_steps": 4000, "rows_per_step": rows, "group": 4, "max_new_tokens": TOKENS, "max_seq_length": 96,
            "proof_every": 1000, "save_every": 1000, "eval_fraction": 0.25, "micro_batch": 4, "wire": "fp32",
        }  # fmt: skip
        super().__init__(home, speeds, options)

    def steps(self) -> list[dict[str, Any]]:
        return history(self.events())

    def reaches(self, step: int) -> None:
        until = time.monotonic() + HANGS_S
        while len(self.steps()) < step:
            if any(process.poll() is not None for process in self.processes) or time.monotonic() > until:
                raise SystemExit(self.said())
            time.sleep(0.05)

    def stop(self) -> None:
        self.send(signal.SIGKILL)
        for process in self.processes:
            process.wait()

    def tokens_per_s(self, first: int, end: int) -> float:
        """Tokens of answers that were made and trained on, in a second."""
        some = self.steps()[first:end]
        tokens = sum(one["rollout"]["answer_tokens"] * self.rows for one in some)
        return float(tokens / sum(one["step_s"] for one in some))


def turn(runs: list[Learners], steps: int) -> list[float]:
    """So many steps of each at the same time; the one that a stop broke off before does not count."""
    firsts = [len(run.steps()) + 1 for run in runs]
    for run in runs:
        run.send(signal.SIGCONT)
    for run, first in zip(runs, firsts, strict=True):
        run.reaches(first + steps)
    for run in runs:
        run.send(signal.SIGSTOP)
    return [run.tokens_per_s(first, first + steps) for run, first in zip(runs, firsts, strict=True)]


def measure(data: Path) -> Figures:
    with tempfile.TemporaryDirectory() as made:
        home, runs = Path(made), list[Learners]()
        try:
            runs.append(Learners(data, home / "together", SPEEDS, ROWS))
            runs[0].reaches(SETTLE)
            runs[0].send(signal.SIGSTOP)
            for at, (speed, rows) in enumerate(zip(SPEEDS, ALONE, strict=True)):
                runs.append(Learners(data, home / f"alone-{at}", (speed,), rows))
            for run in runs[1:]:
                run.reaches(2)
                run.send(signal.SIGSTOP)
            turns = [[*turn(runs[:1], STEPS), *turn(runs[1:], STEPS)] for _ in range(TURNS)]
            last = runs[0].steps()[-STEPS:]
        finally:
            for run in runs:
                run.stop()
    waits = [one["nodes"][name]["wait_s"] / one["step_s"] for one in last for name in one["nodes"]]
    return {
        "together": [found[0] for found in turns],
        "alone": [found[1:] for found in turns],
        "waits": statistics.fmean(waits),
        "taken over": statistics.fmean(one["rollout"]["taken_over"] for one in last),
        "made": [statistics.fmean(one["rollout"]["made"][name] for one in last) for name in last[-1]["nodes"]],
    }


PARTS: dict[str, Callable[[Path], Figures]] = {"together": measure}


@contextlib.contextmanager
def prompts() -> Iterator[Path]:
    program = (
        "import sys; from pathlib import Path; from tests.train.rewarded import make_data; make_data(Path(sys.argv[1]))"
    )
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([PYTHON, "-c", program, folder], cwd=REPOSITORY, check=True)
        yield Path(folder) / "rows"


def table(found: Found) -> list[str]:
    runs = found["together"]
    turns = list(zip(every(runs, "together"), every(runs, "alone"), strict=True))
    over_fastest = [together / max(alone) for together, alone in turns]
    of_sum = [together / sum(alone) for together, alone in turns]
    rows = [
        row("4:2:1 over the fastest alone", over_fastest, "{:.2f}×", "≥ 1.6× (1.75× at most)", "turns"),
        row("… of the three alone added", of_sum, "{:.0%}", "≥ 90 %", "turns"),
        row("… part of a step in which a machine waits", [run["waits"] for run in runs], "{:.0%}"),
        row("… answers that another machine ended, a step", [run["taken over"] for run in runs], "{:.1f}"),
    ]
    return table_of(("tokens of answers, made and trained on", "measured", "aim"), rows)


if __name__ == "__main__":
    sys.exit(bench(__doc__, NAME, prompts(), PARTS, table))
