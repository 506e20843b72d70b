"""Work in pieces on engines that exist, broken as ours is broken: Optuna's gRPC storage proxy and Dask's scheduler.

    make bench PARTS=pool_engines
    python -m tests.bench.pool_engines "dask: the host is lost" --repeats 1

Five namespaces on a bridge of their own, which leads nowhere else: the host of the list, two workers, the machine of
whoever asks (of Dask; with Optuna nobody needs to stay), and a stranger. Each has one process (pool_roles.py, in an
environment of its own). 24 pieces of a second each; the fault comes when six are done, and 60 s are waited for the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.page import Figures, bench
from tests.bench.pool_roles import PIECES
from tests.support.cluster import REPOSITORY
from train.cache import cache_dir

NAME = "pool_engines"
ROLES = REPOSITORY / "tests/bench/pool_roles.py"
ENGINES = {"optuna": "Optuna 5.0, gRPC storage proxy over SQLite", "dask": "Dask distributed 2026.8"}
WORKERS = ("one", "two")
IN_HAND = f"in-hand-{WORKERS[0]}"
PLACES = ("host", *WORKERS, "client", "stranger")
ADDRESS = {place: f"10.93.0.{number}" for number, place in enumerate(PLACES, 1)}
SWITCH = "switch"
FAULT_AFTER, AWAY_S, LIMIT_S = 6, 20.0, 60.0


class Net:
    """Namespaces and one bridge; a cable is pulled at the bridge's end."""

    def __init__(self) -> None:
        self.names = {place: f"motley-pool-{place}" for place in (SWITCH, *PLACES)}

    def __enter__(self) -> Net:
        self.__exit__()
        for place in self.names.values():
            ip("netns", "add", place)
        self.inside(SWITCH, "ip", "link", "add", "lan", "up", "type", "bridge")
        for place in PLACES:
            ends = {"name": f"to-{place}", "netns": self.names[SWITCH]}
            ip("link", "add", "lan", "netns", self.names[place], "type", "veth", "peer", *sum(ends.items(), ()))
            self.inside(SWITCH, "ip", "link", "set", ends["name"], "master", "lan", "up")
            self.inside(place, "ip", "address", "add", f"{ADDRESS[place]}/24", "dev", "lan")
            for device in ("lan", "lo"):
                self.inside(place, "ip", "link", "set", device, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for place in self.names.values():
            ip("netns", "del", place, check=False)

    def inside(self, place: str, *words: str) -> None:
        ip("netns", "exec", self.names[place], *words)

    def cable(self, place: str, state: str) -> None:
        self.inside(SWITCH, "ip", "link", "set", f"to-{place}", state)


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)


class Pool:
    """One engine at work, in a folder of its own."""

    def __init__(self, net: Net, engine: str, folder: Path) -> None:
        self.net, self.engine, self.folder = net, engine, folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, place: str) -> None:
        role = "worker" if place in WORKERS else place
        with (self.folder / f"{place}.out").open("ab") as out:
            self.processes[place] = subprocess.Popen(
                self.words(place, role), stdout=out, stderr=out, **self.apart(place)
            )

    def words(self, place: str, role: str) -> list[str]:
        inside = ["ip", "netns", "exec", self.net.names[place]]
        return [*inside, str(python()), str(ROLES), self.engine, role, str(self.folder), ADDRESS["host"]]

    def apart(self, place: str) -> dict[str, Any]:
        known = {"POOL_NODE": place, "POOL_ADDRESS": ADDRESS[place], "PYTHONDONTWRITEBYTECODE": "1"}
        return {"env": os.environ | known, "start_new_session": True}

    def signal(self, place: str, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.processes[place].pid, number)

    def end(self) -> None:
        for place, process in self.processes.items():
            self.signal(place, signal.SIGKILL)
            process.wait()

    def done(self) -> list[tuple[int, float]]:
        file = self.folder / "done"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [(int(number), float(at)) for number, at, _ in lines]

    def recorded(self) -> list[int]:
        file = self.folder / "record"
        return list(json.loads(file.read_text())) if file.exists() else []

    def wait(self, enough: Callable[[], bool], limit_s: float) -> None:
        began = time.monotonic()
        while not enough() and time.monotonic() - began < limit_s:
            time.sleep(0.1)


@contextlib.contextmanager
def at_work(net: Net, engine: str) -> Iterator[Pool]:
    with tempfile.TemporaryDirectory() as folder:
        pool = Pool(net, engine, Path(folder))
        try:
            for place in ("host", *WORKERS, *(["client"] if engine == "dask" else [])):
                pool.start(place)
            pool.wait(lambda: len(pool.done()) >= FAULT_AFTER, LIMIT_S)
            pool.wait(lambda: not (pool.folder / IN_HAND).exists(), 2)  # then the next one begins
            pool.wait((pool.folder / IN_HAND).exists, 2)
            yield pool
        finally:
            pool.end()


def host_returns(pool: Pool) -> None:
    pool.signal("host", signal.SIGKILL)
    time.sleep(3)
    pool.start("host")


def worker_is_cut(pool: Pool) -> None:
    pool.net.cable("one", "down")
    time.sleep(AWAY_S)
    pool.net.cable("one", "up")


def worker_sleeps(pool: Pool) -> None:
    pool.signal("one", signal.SIGSTOP)
    time.sleep(AWAY_S)
    pool.signal("one", signal.SIGCONT)


ASKER_OFF = "whoever asked is off"
FAULTS: dict[str, Callable[[Pool], None]] = {
    "nothing": lambda pool: None,
    "the host's power, and it is back": host_returns,
    "the host is lost": lambda pool: pool.signal("host", signal.SIGKILL),
    "a worker is lost": lambda pool: pool.signal("one", signal.SIGKILL),
    "a worker's cable, for 20 s": worker_is_cut,
    "a worker sleeps for 20 s": worker_sleeps,
    ASKER_OFF: lambda pool: pool.signal("client", signal.SIGKILL),
}
STRANGER = "a stranger connects"


def broken(engine: str, fault: str, net: Net) -> Figures:
    with at_work(net, engine) as pool:
        before, at = len(pool.done()), time.time()
        FAULTS[fault](pool)
        pool.wait(lambda: len(set(pool.recorded())) == PIECES, LIMIT_S)
        took = time.time() - at
        done, record = Counter(number for number, _ in pool.done()), pool.recorded()
        after = [when for _, when in pool.done() if when > at + 5]
        said = {place: last_line(pool.folder / f"{place}.out") for place in pool.processes}
    return {
        "done_before": before,
        "in_record": len(set(record)),
        "twice_in_record": len(record) - len(set(record)),
        "worked_twice": sum(count > 1 for count in done.values()),
        "done_and_not_in_record": len(set(done) - set(record)),
        "done_after_5_s": len(after),
        "ended_s": round(took, 1) if len(set(record)) == PIECES else None,
        "said": {place: line for place, line in said.items() if line},
    }


def last_line(file: Path) -> str:
    lines = [line.strip() for line in file.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:160] if lines else ""


def stranger(engine: str, net: Net) -> Figures:
    with at_work(net, engine) as pool:
        words = pool.words("stranger", "stranger")
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, **pool.apart("stranger"))
    answers = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return dict(json.loads(answers[-1])) if answers else {"said": (done.stderr or done.stdout)[-300:]}


def python() -> Path:
    return cache_dir() / "envs/pool-engines/bin/python"


COLUMNS = {
    "in_record": "in the record, of 24",
    "twice_in_record": "twice in it",
    "worked_twice": "worked twice",
    "done_after_5_s": "worked on after 5 s",
    "ended_s": "all done after",
}
CAN = ("read", "add", "take", "delete", "run code")


def table(found: dict[str, list[Figures]]) -> list[str]:
    lines = [f"| broken | engine | {' | '.join(COLUMNS.values())} |", "|---" * (2 + len(COLUMNS)) + "|"]
    pairs = [(fault, engine) for fault in FAULTS for engine in ENGINES]
    lines += [row(fault, engine, runs) for fault, engine in pairs if (runs := found.get(f"{engine}: {fault}"))]
    seen = {engine: runs[-1] for engine in ENGINES if (runs := found.get(f"{engine}: {STRANGER}"))}
    lines += ["", f"| a stranger, without a secret, can | {' | '.join(seen)} |", "|---" * (1 + len(seen)) + "|"]
    return [
        *lines,
        *(f"| {what} | {' | '.join('yes' if can.get(what) else 'no' for can in seen.values())} |" for what in CAN),
    ]


def row(fault: str, engine: str, runs: list[Figures]) -> str:
    return f"| {fault} | {engine} | {' | '.join(', '.join(shown(run[name]) for run in runs) for name in COLUMNS)} |"


def shown(value: float | None) -> str:
    return "never" if value is None else f"{value} s" if isinstance(value, float) else str(value)


PARTS: dict[str, Callable[[Net], Figures]] = {
    f"{engine}: {what}": partial(stranger, engine) if what == STRANGER else partial(broken, engine, what)
    for what in (*FAULTS, STRANGER)
    for engine in ENGINES
    if (engine, what) != ("optuna", ASKER_OFF)
}


def main() -> int:
    subprocess.run([REPOSITORY / "requirements/make_env.sh", python().parents[1], NAME.replace("_", "-")], check=True)
    return bench(__doc__, NAME, Net(), PARTS, table)


if __name__ == "__main__":
    sys.exit(main())
