"""Eight requests at once to three machines with 60, 30 and 15 % of a core, and to each of them alone, in turns.

    make bench PARTS=serve
    python -m tests.bench.serve eight --repeats 1

The machines are folders here, and their processes have a quota each. Who is alone has its part of the requests, and all
three are at it at the same time. Each client asks again as soon as it has its answer.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from lab import cgroups
from tests.bench.page import Figures, Found, bench, row
from tests.bench.trainer import PYTHON
from tests.support import served
from tests.support.cluster import REPOSITORY
from tests.support.finished_homes import RUN, homes_of, server_of
from tests.support.played_answers import install
from tests.support.served import Served, stream
from tests.support.tables import table as table_of

NAME = "serve"
PERCENT = {"fast": 60.0, "middle": 30.0, "slow": 15.0}
ALONE = {"fast": 5, "middle": 2, "slow": 1}
"""Of the eight requests, as their speeds are."""
SETTLE_S, TURN_S, TURNS, MOST = 20.0, 25.0, 3, 32


class Over(Exception):
    """Enough is measured."""


class Clients:
    """Some who ask one endpoint again and again, and how many parts of answers they get."""

    def __init__(self, port: int, count: int) -> None:
        self.port, self.parts, self.over = port, 0, threading.Event()
        self.threads = [threading.Thread(target=self._ask, args=(n,), daemon=True) for n in range(count)]
        for thread in self.threads:
            thread.start()

    def _ask(self, client: int) -> None:
        question, number = {"role": "user", "content": "Tell me a long story of a machine."}, client
        while not self.over.is_set():
            number += 100
            with contextlib.suppress(Over):
                stream(self.port, {"messages": [question], "max_tokens": MOST, "seed": number}, self._count)

    def _count(self, _: int) -> None:
        self.parts += 1
        if self.over.is_set():
            raise Over

    def stop(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()


def parts_per_s(ports: Sequence[int], counts: Sequence[int], seconds: float, settle_s: float = 5.0) -> list[float]:
    """Of each endpoint, all asked at the same time."""
    clients = [Clients(port, count) for port, count in zip(ports, counts, strict=True)]
    try:
        time.sleep(settle_s)
        before, since = [one.parts for one in clients], time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - since
        return [(one.parts - had) / took for one, had in zip(clients, before, strict=True)]
    finally:
        for one in clients:
            one.stop()


@contextlib.contextmanager
def played() -> Iterator[tuple[Served, list[Served]]]:
    """Machines whose tokens take pretended seconds, and twice as long beside another answer: what the router makes of
    them, whatever else this machine does."""
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        served_by = []
        for name, nodes in (("together", [*PERCENT]), *((one, [one]) for one in PERCENT)):
            homes = {node: Path(made) / name / node for node in nodes}
            for node, home in homes.items():
                install(home, 1 / PERCENT[node])
            here = stack.enter_context(served.served(served.inventory(Path(made) / name, homes), RUN))
            for node in nodes:
                here.says(f"✓ {node}: ")
            served_by.append(here)
        yield served_by[0], served_by[1:]


@contextlib.contextmanager
def machines(model: str) -> Iterator[tuple[Served, list[Served]]]:
    """All three served together, and each of them by an endpoint of its own, with the same quotas."""
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        served_by = []
        for name, nodes in (("together", [*PERCENT]), *((one, [one]) for one in PERCENT)):
            folder = Path(made) / name
            homes = {node: folder / node for node in nodes}
            homes_of(PYTHON, model, homes)
            here = stack.enter_context(served.served(served.inventory(folder, homes), RUN))
            for node in nodes:
                here.says(f"✓ {node}: ")
                stack.callback(cgroups.quota, group(node), None)
                join(node, server_of(homes[node]))
            served_by.append(here)
        for node, percent in PERCENT.items():
            cgroups.quota(group(node), percent)
        yield served_by[0], served_by[1:]


def group(node: str) -> str:
    return f"motley-bench-serve/{node}"


def join(node: str, pid: int) -> None:
    """All of its threads."""
    for folder in cgroups.create(group(node)):
        (folder / "cgroup.procs").write_text(str(pid))


def measure(_: None, place: Callable[[], AbstractContextManager[tuple[Served, list[Served]]]]) -> Figures:
    found: dict[str, list[object]] = {"together": [], "alone": [], "eight to the fastest": []}
    with place() as (together, alone):
        ports = [one.port for one in alone]
        parts_per_s([together.port], [8], SETTLE_S)
        for _turn in range(TURNS):
            found["together"] += parts_per_s([together.port], [8], TURN_S)
            found["alone"].append(parts_per_s(ports, [*ALONE.values()], TURN_S))
            found["eight to the fastest"] += parts_per_s(ports[:1], [8], TURN_S)
            print({what: values[-1] for what, values in found.items()}, flush=True)
    return found


PARTS = {"eight": partial(measure, place=partial(machines, "smollm2-135m")), "played": partial(measure, place=played)}
OF_SUM = "… of the three alone added"
TITLES = {"eight": "SmolLM2-135M by 60, 30 and 15 % of a core", "played": "pretended speeds 60:30:15"}


def table(found: Found) -> list[str]:
    rows = []
    for part, runs in found.items():
        turns = [turn for run in runs for turn in zip(*run.values(), strict=True)]
        rows += [
            row(f"three machines, {TITLES[part]}", [together for together, _, _ in turns], "{:.1f}", of="turns"),
            row(OF_SUM, [together / sum(alone) for together, alone, _ in turns], "{:.0%}", "≥ 90 %", "turns"),
            row("… over the fastest alone with all eight", [together / fast for together, _, fast in turns], "{:.2f}×"),
        ]
    return table_of(("tokens/s of eight requests at once", "measured", "aim"), rows)


def main() -> int:
    if why := cgroups.check():
        raise SystemExit(why)
    os.environ["OMP_NUM_THREADS"] = "1"
    subprocess.run([str(PYTHON), "--version"], cwd=REPOSITORY, check=True)
    return bench(__doc__, NAME, contextlib.nullcontext(), PARTS, table)


if __name__ == "__main__":
    sys.exit(main())
