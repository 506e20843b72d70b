"""What the lab cannot hold: clusters of 5, 16 and 64 nodes, real agents in played time (tests/sim); and
eight small hosts for real, one of which loses power while all train.

make bench PARTS=growth                     as root, for a network namespace of its own
python -m tests.bench.growth agree --repeats 1
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from operator import itemgetter

from lab import faults
from tests.bench.page import Figures, Found, bench, spread
from tests.sim.run_story import PlayedRun, RunStory
from tests.support.cluster import REPOSITORY
from tests.support.tables import table as table_of
from tests.support.training import training_on
from train.parallel.rebalance import Balance
from train.plan.speed.step_time import Machine, Traffic, together

NAME = "growth"
COUNTS = (3, 5, 16, 64)
REAL = (3, 5, 16)
"""Heartbeats that one process can hold."""
KEPT_LOG = REPOSITORY / "tests/kept/run-67676e9/node-0/logs/runs/run/events.jsonl"
LINKS = (2500, 1000, 100)
EIGHT_LOSE, EIGHT_HANG_S = 3, 240
LORA_7B, SPEED, ROWS_EACH = 40_000_000, 4.0, 32
"""Weights that are trained, rows of 512 tokens that a card computes in a second, rows of a step for each."""


def heartbeats(_: None) -> Figures:
    found = {}
    for count in REAL:
        command = ["unshare", "-n", sys.executable, "-m", "tests.bench.heartbeats", str(count)]
        found[str(count)] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def agree(_: None) -> Figures:
    """Seconds from a loss until all that are left train in one generation."""
    return {str(count): {what: agreed_s(count, lost) for what, lost in losses(count).items()} for count in COUNTS}


def losses(count: int) -> dict[str, list[int]]:
    return {"one": [1], "the host": [0], "a third": list(range(count // 3))}


def agreed_s(count: int, lost: list[int]) -> float:
    cluster = PlayedRun(RunStory(random.randrange(1 << 30), count, ()))
    cluster.train_or_wait(cluster.order)
    for place in lost:
        cluster.power_off(cluster.order[place])
    since, rest = cluster.play.time, {name for i, name in enumerate(cluster.order) if i not in lost}

    def agree() -> bool:
        followed = [agent.generation for agent in cluster.agents(rest)]
        return all(one and set(one.members) == rest for one in followed)

    cluster.until(agree, 600, lambda: f"they do not agree: {cluster.states()}")
    return cluster.play.time - since


def work(_: None) -> Figures:
    """Milliseconds of a new plan of shares, and bytes of a step in the event log."""
    return {str(count): {"balance_ms": balance_ms(count), "log": log_bytes(count)} for count in COUNTS}


def balance_ms(count: int) -> float:
    names = [f"gpu-worker-{i}" for i in range(count)]
    plan, took = Balance(names, 8 * count), []
    for _ in range(60):
        nodes = {
            n: {"rows": r, "compute_s": r / (1 + i % 7)}
            for i, (n, r) in enumerate(zip(names, plan.counts, strict=True))
        }
        since = time.thread_time()
        plan.learn(nodes)
        took.append((time.thread_time() - since) * 1000)
    return max(took)


def log_bytes(count: int) -> int:
    """Of a step of a real run, as if it had so many nodes."""
    step = next(line for line in KEPT_LOG.read_text().splitlines() if '"event": "step"' in line)
    event = json.loads(step)
    nodes = event["nodes"]
    each = len(json.dumps(nodes)) / len(nodes)
    return round(len(step) + (count - len(nodes)) * each)


def eight(_: None) -> Figures:
    """Seconds of eight real hosts, and what the played ones take to agree after the same loss."""
    with training_on(f"growth{os.getpid()}", "eight") as training:
        lost, rest = training.names[EIGHT_LOSE], [name for name in training.names if name != training.names[EIGHT_LOSE]]
        began = time.time()
        training.launch("eight", max_steps=1_000_000, rows_per_step=16)
        first_s = training.together(*training.names, since=began, within_s=EIGHT_HANG_S)
        time.sleep(10)
        step_s = statistics.median(e["step_s"] for e in training.events(rest[0])[-10:] if e["event"] == "step")
        cut = time.time()
        faults.inject(training.lab, training.host(lost), "power-cut")
        again_s = training.together(*rest, since=cut, within_s=EIGHT_HANG_S)
        plans = [e for name in rest for e in training.members(name, "plan") if e["time"] > cut]
        agreed = min(e["time"] for e in plans if set(e["nodes"]) == set(rest)) - cut
        return {
            "first_s": first_s,
            "step_s": step_s,
            "agreed_s": agreed,
            "again_s": again_s,
            "repeated": training.repeated(rest[0], cut),
            "played_s": agreed_s(len(training.names), [EIGHT_LOSE]),
        }


EIGHT = (
    ("launched together: seconds until all eight train", "first_s", "{:.1f}"),
    ("a step, seconds", "step_s", "{:.2f}"),
    ("a worker's power cut: seconds until the seven others agree", "agreed_s", "{:.1f}"),
    ("… until the seven train again", "again_s", "{:.1f}"),
    ("… steps repeated", "repeated", "{:.0f}"),
)


def table(found: Found) -> list[str]:
    def line(what: str, part: str, value: Callable[[Figures], float], form: str) -> list[str]:
        cells = [[value(run[str(count)]) for run in found[part] if str(count) in run] for count in COUNTS]
        return [what, *(spread(values, form) if values else "—" for values in cells)]

    rows = [
        line("heartbeats: kbit/s that each node sends", "heartbeats", lambda n: n["bytes"] * 8 / 1000, "{:.0f}"),
        line("… and of a core, each node", "heartbeats", lambda n: n["core"], "{:.1%}"),
        *(
            line(f"{what} lost: seconds until all others agree", "agree", itemgetter(what), "{:.1f}")
            for what in losses(3)
        ),
        line("a new plan of shares, ms", "work", lambda n: n["balance_ms"], "{:.1f}"),
        line("a step in the event log, kB", "work", lambda n: n["log"] / 1000, "{:.1f}"),
    ]
    for mbit in LINKS:
        ratios = [f"{predicted(count, mbit):.2f}×" for count in COUNTS]
        rows.append([f"predicted speed-up of llama2-7b over {mbit} Mbit/s", *ratios])
    runs = found["eight"]
    played = {"agreed_s": spread([run["played_s"] for run in runs], "{:.1f}")}
    of_eight = [(what, spread([run[key] for run in runs], form), played.get(key, "")) for what, key, form in EIGHT]
    heads = ("eight lab hosts on two cores, all train `tiny`", "measured", "simulated")
    return [*table_of(("nodes", *COUNTS), rows), "", *table_of(heads, of_eight)]


def predicted(count: int, mbit: float) -> float:
    """Over one machine alone, with as many rows for each: 4 rows/s, LoRA of 40 M weights."""
    traffic = Traffic(weights=LORA_7B)
    machines = [Machine(f"n{i}", SPEED, mbit) for i in range(count)]
    return count * (ROWS_EACH / SPEED) / together(machines, ROWS_EACH * count, traffic.bytes).step_s


PARTS: dict[str, Callable[[None], Figures]] = {"heartbeats": heartbeats, "agree": agree, "work": work, "eight": eight}


if __name__ == "__main__":
    sys.exit(bench(__doc__, NAME, contextlib.nullcontext(), PARTS, table))
