"""Training by rewards on three machines of speeds 4:2:1, and each of them alone, in turns of some steps.

    make bench PARTS=rewards
    python -m tests.bench.rewards together --repeats 1

The machines are processes here, and their speeds are pretended: each token of each answer and each row of training
takes so long, whatever is made beside it (tests/train/broken.py). Who is alone has its part of the rows, and all three
are at it at the same time. All runs stay loaded, and who has no turn is stopped.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.page import Figures, bench, row, spread
from tests.bench.pretrain import PYTHON
from tests.support.training import REPOSITORY
from train.runlog.state import history
from train.runlog.tail import read

NAME = "rewards"
SPEEDS = (4, 2, 1)
ROWS, ALONE = 64, (36, 20, 8)
STEPS, SETTLE, TURNS = 6, 8, 3
TOKENS = 40
HANGS_S = 300.0
AIMS = {"fastest": "≥ 1.6× (1.75× at most)", "sum": "≥ 90 %"}


class Machines:
    """One run of some processes, with the given speeds."""

    def __init__(self, data: Path, home: Path, speeds: tuple[int, ...], rows: int, change: str = "") -> None:
        self.home, self.rows = home, rows
        port = 30_000 + secrets.randbelow(2_700)
        options = {
            "recipe": "grpo", "model": "tiny", "dataset": data, "rewards": data.parent / "rewards.py", "run": "run",
            "max_steps": 4000, "rows_per_step": rows, "group": 4, "max_new_tokens": TOKENS, "max_seq_length": 96,
            "proof_every": 1000, "save_every": 1000, "eval_fraction": 0.25, "micro_batch": 4, "wire": "fp32",
        }  # fmt: skip
        self.processes = []
        for rank, speed in enumerate(speeds):
            what = f"pretended_speed={speed}{change}"
            words = [*(f"--{name.replace('_', '-')}={value}" for name, value in options.items())]
            own = home / f"node-{rank}"
            own.mkdir(parents=True)
            env = os.environ | {
                "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(REPOSITORY),
                "MOTLEY_NODE": f"node-{rank}", "RANK": str(rank), "WORLD_SIZE": str(len(speeds)), "LOCAL_RANK": "0",
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
            }  # fmt: skip
            with (own / "out.txt").open("w") as out:
                command = [str(PYTHON), "tests/train/broken.py", what, "run", *words, f"--home={own}"]
                self.processes.append(subprocess.Popen(command, cwd=REPOSITORY, env=env, stdout=out, stderr=out))

    def steps(self) -> list[dict[str, Any]]:
        log = self.home / "node-0/logs/runs/run/events.jsonl"
        return history(read(log)) if log.exists() else []

    def reaches(self, step: int) -> None:
        until = time.monotonic() + HANGS_S
        while len(self.steps()) < step:
            if any(process.poll() is not None for process in self.processes) or time.monotonic() > until:
                raise SystemExit((self.home / "node-0/out.txt").read_text()[-3000:])
            time.sleep(0.05)

    def send(self, number: int) -> None:
        for process in self.processes:
            process.send_signal(number)

    def stop(self) -> None:
        self.send(signal.SIGKILL)
        for process in self.processes:
            process.wait()

    def tokens_per_s(self, first: int, end: int) -> float:
        """Tokens of answers that were made and trained on, in a second."""
        some = self.steps()[first:end]
        tokens = sum(one["rollout"]["answer_tokens"] * self.rows for one in some)
        return float(tokens / sum(one["step_s"] for one in some))


def turn(runs: list[Machines], steps: int) -> list[float]:
    """So many steps of each at the same time; the one that a stop broke off before does not count."""
    firsts = [len(run.steps()) + 1 for run in runs]
    for run in runs:
        run.send(signal.SIGCONT)
    for run, first in zip(runs, firsts, strict=True):
        run.reaches(first + steps)
    for run in runs:
        run.send(signal.SIGSTOP)
    return [run.tokens_per_s(first, first + steps) for run, first in zip(runs, firsts, strict=True)]


def measure(data: Path, change: str = "") -> Figures:
    with tempfile.TemporaryDirectory() as made:
        home, runs = Path(made), list[Machines]()
        try:
            runs.append(Machines(data, home / "together", SPEEDS, ROWS, change))
            runs[0].reaches(SETTLE)
            runs[0].send(signal.SIGSTOP)
            for at, (speed, rows) in enumerate(zip(SPEEDS, ALONE, strict=True)):
                runs.append(Machines(data, home / f"alone-{at}", (speed,), rows))
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


PARTS: dict[str, Callable[[Path], Figures]] = {
    "together": measure,
    "no taking over": partial(measure, change="+nobody_takes_over"),
}


@contextlib.contextmanager
def prompts() -> Iterator[Path]:
    program = (
        "import sys; from pathlib import Path; from tests.train.rewarded import make_data; make_data(Path(sys.argv[1]))"
    )
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([PYTHON, "-c", program, folder], cwd=REPOSITORY, check=True)
        yield Path(folder) / "rows"


def table(found: dict[str, list[Figures]]) -> list[str]:
    lines = ["| tokens of answers, made and trained on | measured | aim |", "| --- | --- | --- |"]
    for part, words in (("together", ""), ("no taking over", ", and nobody takes over what a slow one has begun")):
        if not (runs := found.get(part)):
            continue
        pairs = [pair for run in runs for pair in zip(run["together"], run["alone"], strict=True)]
        aims = AIMS if part == "together" else dict.fromkeys(AIMS, "")
        over_fastest = [together / max(alone) for together, alone in pairs]
        of_sum = [together / sum(alone) for together, alone in pairs]
        lines += [
            f"| 4:2:1 over the fastest alone{words} | {spread(over_fastest, '{:.2f}×', 'turns')} | {aims['fastest']} |",
            f"| … of the three alone added | {spread(of_sum, '{:.0%}', 'turns')} | {aims['sum']} |",
            row("… part of a step in which a machine waits", [run["waits"] for run in runs], "{:.0%}"),
            row("… answers that another machine ended, a step", [run["taken over"] for run in runs], "{:.1f}"),
        ]
    return lines


def main() -> int:
    return bench(__doc__, NAME, prompts(), PARTS, table)


if __name__ == "__main__":
    sys.exit(main())
