"""Each way of adding gradients up, on each wire, over links of several speeds.

make bench PARTS=sync
python -m tests.bench.sync 1000 100 --repeats 1
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
from itertools import count as counting

from lab.lab import Lab
from tests.bench.page import Figures, bench
from tests.support import torchrun
from tests.support.torchrun import Training

NAME = "sync"
LINKS_MBIT = (1000, 100, 20)
COUNTER = counting()


def measure(lab: Lab, link_mbit: int) -> Figures:
    torchrun.links(lab.hosts, link_mbit)
    words = "-m train bench sync --model tiny --lora-r 64 --repeats 5 --json"
    run = Training(f"sync{next(COUNTER)}", lab.hosts, words.split())
    run.end()
    said = (run.folder / lab.hosts[0].name).read_text()
    answer = json.loads(next(line for line in reversed(said.splitlines()) if line.startswith("{")))
    return {"measured": answer["measured"]}


def table(found: dict[str, list[Figures]]) -> list[str]:
    lines = ["| link | sync | wire | step | of it waiting and sending |", "| --- | --- | --- | --- | --- |"]
    for link in sorted(found, key=int, reverse=True):
        runs = [run["measured"] for run in found[link]]
        for number, first in enumerate(runs[0]):
            steps = [run[number]["step_s"] for run in runs]
            syncs = [run[number]["blocked_s"] for run in runs]
            lines.append(
                f"| {link} Mbit/s | {first['sync']} | {first['wire']} | {statistics.median(steps):.2f} s "
                f"({min(steps):.2f}–{max(steps):.2f}) | {statistics.median(syncs):.2f} s |"
            )
    return lines


PARTS = {str(link): functools.partial(measure, link_mbit=link) for link in LINKS_MBIT}


def main() -> int:
    return bench(__doc__, NAME, torchrun.lab_for_training("benchsync"), PARTS, table)


if __name__ == "__main__":
    sys.exit(main())
