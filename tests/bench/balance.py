"""What balancing gains on unequal hosts of the lab, beside an even split and beside the peer.

make bench PARTS=balance                 three repeats of each part
python -m tests.bench.balance trio pair throttle peer --repeats 1
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import zip_longest

from lab.lab import Lab
from tests.bench.page import Figures, bench, over, row
from tests.bench.speed import COUNTER, MICRO_BATCH, measured, rows_per_second
from tests.support import torchrun
from tests.support.torchrun import AT, Training
from train.parallel.rebalance import QUIET

ROWS = 24
PAIR_ROWS = 48
"""Of two hosts one may be paused by its quota while the other waits: little of a long step."""
NAME = "balance"


def trio(lab: Lab) -> Figures:
    even = rows_per_second(lab.hosts, rows=ROWS, skip=1, count=3, balance="even")
    return {"even": even, "auto": rows_per_second(lab.hosts, rows=ROWS, skip=2 * QUIET, count=15)}


def peer(lab: Lab) -> Figures:
    """HF Trainer on the same hosts."""
    name = f"hf{next(COUNTER)}"
    out = AT / "runs/logs/runs" / name / "events.jsonl"
    words = ["-m", "tests.bench.hf_trainer", "tiny", AT / "data", out, ROWS, 400, MICRO_BATCH]
    run = Training(name, lab.hosts, list(map(str, words)))
    return {"peer": measured(run, rows=ROWS, skip=1, count=3)}


def pair(lab: Lab) -> Figures:
    hosts = lab.hosts[:2]
    faster = rows_per_second(hosts[:1], rows=PAIR_ROWS, skip=1, count=5)
    return {"faster": faster, "both": rows_per_second(hosts, rows=PAIR_ROWS, skip=14, count=10)}


def throttle(lab: Lab) -> Figures:
    """Steps until the throttled host has the rows it keeps, give or take one, and until it has them back."""
    run = torchrun.train(f"b{next(COUNTER)}", lab.hosts, rows_per_step=ROWS, max_steps=400, micro_batch=MICRO_BATCH)
    try:
        run.wait_for_step(2)
        torchrun.quotas(lab.hosts, on=True)
        found: Figures = {}
        at = run.wait_for_step(22)
        for what, percent in (("throttled", {"gpu-worker-1": 15}), ("recovered", {})):
            torchrun.quotas(lab.hosts, on=True, percent=percent)
            end = run.wait_for_step(at + 15)
            moves = [event for event in run.events("balance") if at < event["step"] <= end]
            rows = [step["nodes"]["gpu-worker-1"]["rows"] for step in run.events("step")[at:end]]
            found[what] = 1 + max((i for i, count in enumerate(rows) if abs(count - rows[-1]) > 1), default=0)
            found[f"{what} says"] = moves[0]["reason"] if moves else "nothing"
            at = end
        return found
    finally:
        torchrun.quotas(lab.hosts, on=False)
        run.stop()


PARTS: dict[str, Callable[[Lab], Figures]] = {
    "trio": trio,
    "peer": peer,
    "pair": pair,
    "throttle": throttle,
}


def main() -> int:
    return bench(__doc__, NAME, torchrun.lab_for_training("benchbalance"), PARTS, table)


def table(found: dict[str, list[Figures]]) -> list[str]:
    pairs, moves = found.get("pair", []), found.get("throttle", [])
    lines = [*one_by_one(found), "| what | measured | aim |", "| --- | --- | --- |"]
    if pairs:
        lines.append(
            row(
                f"60 % and 30 % over 60 % alone, {PAIR_ROWS} rows",
                [p["both"] / p["faster"] for p in pairs],
                "{:.2f}×",
                "≥ 1.35×",
            )
        )
    for what in ("throttled", "recovered"):
        if moves:
            lines.append(row(f"steps to follow a node that {SAYS[what]}", [m[what] for m in moves], "{:.0f}", "≤ 10"))
    return lines


def one_by_one(found: dict[str, list[Figures]]) -> list[str]:
    """A line for each repeat, whose ratios are of its own figures."""
    heads = ("repeat", "rows/s together, balanced", "even split", "balanced over even, aim ≥ 2.1×")
    lines = [f"| {' | '.join(heads)} | HF Trainer + DDP (even) | balanced over it |", "| --- |" + " --- |" * 5]
    for number, (trio, peer) in enumerate(zip_longest(found.get("trio", []), found.get("peer", [])), 1):
        cells = [""] * 5
        if trio:
            cells[:3] = [f"{trio['auto']:.1f}", f"{trio['even']:.1f}", f"{over(trio['auto'], trio['even']):.2f}×"]
        if peer:
            cells[3] = f"{peer['peer']:.1f}"
        if trio and peer:
            cells[4] = f"{over(trio['auto'], peer['peer']):.2f}×"
        lines.append(f"| {number} | {' | '.join(cells)} |")
    return [*lines, ""] if len(lines) > 2 else []


SAYS = {"throttled": "is throttled from 30 to 15 %", "recovered": "recovers"}


if __name__ == "__main__":
    sys.exit(main())
