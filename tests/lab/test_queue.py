"""A night of three runs: one is running, two wait in the queue, and the controller is off. A machine loses its power,
does not hear that the run was stopped, and is back when another is running; each ends once, one after the other, and
the last one's end leaves nothing behind. In test_run_life.py a run begins where another came to its own end."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import faults
from lab.host import Host
from lab.profile import CLUSTER_HOME as HOME
from tests.support import pace, typed
from tests.support.bootstrap import Person
from train.runlog.tail import read

MASTER, OLD = "gpu-master", "gpu-worker-2"
STEPS = {"first": 50000, "second": 8, "third": 8, "never": 8}
WHOLE = ("second", "third")
QUICK = ("model=tiny", "rows_per_step=12", "max_seq_length=64", "save_every=10", "follow=false")
NIGHT_S = 300


@pytest.fixture(scope="module")
def person(ready_trio: Person) -> Iterator[Person]:
    for host in ready_trio.cluster.hosts:
        faults.inject(ready_trio.cluster.lab, host, "delay", {"delay_ms": 40.0})  # a step waits for it
    ready_trio.writes(motley_render_environment={"OMP_NUM_THREADS": 1})
    yield ready_trio
    ready_trio.types("stop", "--all")


def asked(*variables: str) -> list[str]:
    return typed.variables(*QUICK, *variables)


def launched(person: Person, run: str, *variables: str) -> str:
    return typed.says(person, "launch", *asked(f"run={run}", f"max_steps={STEPS[run]}", *variables))


def at(host: Host, path: str) -> Path:
    return host.disk.root / f"{HOME}/{path}".lstrip("/")


def events(host: Host, run: str) -> list[dict[str, Any]]:
    return read(at(host, f"logs/runs/{run}/events.jsonl"))


def kinds(host: Host, run: str) -> list[str]:
    return [event["event"] for event in events(host, run)]


@pytest.mark.long  # tests/sim plays such nights; a run begins by itself in test_run_life.py
def test_a_night_of_three_runs_without_the_controller(person: Person) -> None:
    hosts = {host.name: host for host in person.cluster.hosts}
    launched(person, "first")
    refused = person.types("launch", *asked("run=other"))
    assert refused.rc == 2 and "or let it begin after that one: --queue\n" in refused.out, refused.out
    assert "begins by itself when first has ended" in launched(person, "second", "queue=true")
    assert "begins by itself when first, second have ended" in launched(person, "third", "queue=true")
    said = person.types("launch", "--json", *asked("run=never", f"max_steps={STEPS['never']}", "queue=true"))
    receipt = {"event": "queued", "run": "never", "nodes": [*hosts], "after": ["first", *WHOLE]}
    assert said.rc == 0 and json.loads(said.out.splitlines()[0]) == receipt, said.out
    again = person.types("launch", *asked("run=third", "queue=true"))
    assert again.rc == 2 and "'third' is running or waits already" in again.out, again.out
    moved = person.types("queue", "--move", "never", "--to", "2")
    assert re.search(r"2 +never +waits .*\n +3 +second .*\n +4 +third", moved.out), moved.out
    removed = person.types("queue", "--remove", "never")
    assert removed.rc == 0 and "never" in removed.out.split("third")[1], removed.out
    shown = person.types("queue").out
    in_order = r"1 +first +training .*\n +2 +second +waits .*until first has ended\n +3 +third +waits"
    assert re.search(in_order, shown), shown
    assert "then, by itself: second, third" in person.types("status").out
    assert re.search(r"(?m)^second .* waiting ", person.types("runs").out)

    lab = person.cluster.lab
    faults.inject(lab, hosts[OLD], "power-cut")
    stopped = person.types("stop").out  # from here on nobody types anything
    assert "run first stopped at step" in stopped and "next in the queue: second" in stopped, stopped
    pace.until(lambda: "start" in kinds(hosts[MASTER], "second"), NIGHT_S, "the second run does not begin")
    faults.fix(lab, hosts[OLD], "power-cut")  # its own list still says that the first one is on
    over = lambda: all(not at(host, "config/run-wanted").exists() for host in hosts.values())  # noqa: E731
    pace.until(over, NIGHT_S, lambda: person.types("queue").out + person.types("status").out)

    shown = person.types("queue").out
    assert shown.startswith("0 runs in the queue"), shown
    assert re.search(r"first +stopped ", shown) and all(re.search(rf"{run} +done ", shown) for run in WHOLE), shown
    for run in WHOLE:
        adapters = {host.run("sha256sum", f"{HOME}/results/{run}/adapter/adapter_model.safetensors").split()[0]
                    for host in hosts.values() if at(host, f"results/{run}/adapter").exists()}  # fmt: skip
        assert len(adapters) == 1, run
        assert kinds(hosts[MASTER], run).count("done") == 1
    every = ("first", *WHOLE)
    times = [(events(hosts[MASTER], run)[0]["time"], events(hosts[MASTER], run)[-1]["time"]) for run in every]
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(times)), times
    assert "done" in kinds(hosts[OLD], "third"), "who was off comes back into the run whose turn it is"
    assert kinds(hosts[OLD], "first").count("start") == 1, "it does not train again what has ended"
    assert kinds(hosts[MASTER], "never") == []
