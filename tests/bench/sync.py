"""Each way of adding gradients up, on each wire, over links of several speeds.

make bench PARTS=sync
python -m tests.bench.sync 1000 100 --repeats 1
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from itertools import count as counting

from lab import shaping
from lab.lab import Lab
from tests.bench.page import Figures, forget, keep, kept, put
from tests.support import torchrun
from tests.support.torchrun import Training

NAME = "sync"
LINKS_MBIT = (1000, 100, 20)
COUNTER = counting()


def measure(lab: Lab, link_mbit: int) -> Figures:
    for host in lab.hosts:
        shaping.set_rate(host.cable, link_mbit)
    words = "-m train bench sync --model tiny --lora-r 64 --repeats 5 --json"
    run = Training(f"sync{next(COUNTER)}", lab.hosts, words.split())
    run.end(300)
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("links", nargs="*", type=int, default=list(LINKS_MBIT), help="Mbit/s")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--anew", action="store_true", help="forget what was measured before")
    args = parser.parse_args()
    if args.anew:
        forget(NAME)
    with torchrun.lab_for_training("benchsync") as lab:
        for _ in range(args.repeats):
            for link in args.links:
                keep(NAME, str(link), measure(lab, link))
    put(NAME, table(kept(NAME)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
