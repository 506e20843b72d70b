"""From the command to processes, and to the first step, of a launch to which nothing is new.

    make bench PARTS=launch

Three hosts of the lab, model `tiny`; a first launch brings everything, the following ones are measured, in turns: as
they are, and with nodes that load nothing before the run is there (motley_plan_preload). The controller and three hosts
share two cores, so the same again on one host alone. Where the time goes is read from Ansible's log (a line with its
time for each task) and from the event logs of the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from itertools import count as counting
from pathlib import Path

from lab.host import Host
from tests.bench.page import Figures, Found, bench, spread
from tests.support.bootstrap import Person, person_with_trio
from tests.support.tables import table as table_of

NAME = "launch"
COUNTER = counting()
HOME = "home/user/ai-cluster"
SETTINGS: Figures = {"model": "tiny", "max_steps": 2000, "rows_per_step": 12, "max_seq_length": 64, "follow": "false"}
PARTS = {
    "ansible, until its first task": "",
    "check what is asked": "motley_request",
    "meet the nodes": "motley_contact",
    "look at them, versions, plan": "motley_plan",
    "model, data: all is there": "motley_distribute",
    "write each node's files": "motley_render",
    "start, until the last agent is up": "motley_start",
    "agents agree on a plan": "plan",
    "import torch, build the model, join": "start",
    "the first step": "step",
}
PROCESSES, WHOLE = "command to processes up", "command to the first step"
WORKED, BUSY = "processor seconds of all hosts and the controller", "how busy the processor is with them, %"
AIMS = {PROCESSES: "≤ 10 s", WHOLE: "≤ 10 s"}


@contextlib.contextmanager
def warm_trio() -> Iterator[Person]:
    with person_with_trio("benchlaunch", "train") as person:
        person.writes(motley_render_environment={"OMP_NUM_THREADS": 1})  # three machines share these cores
        for phase in ("ssh_trust", "static_ip", "run"):
            person.bootstraps(phase=phase)
        measured(person, "first")
        yield person


WAYS: dict[str, Figures] = {
    "late": {"motley_plan_preload": "false"},
    "early": {},
    "one late": {"motley_plan_preload": "false", "nodes": "gpu-master"},
    "one early": {"nodes": "gpu-master"},
}


def one(person: Person, way: str) -> Figures:
    return measured(person, f"{way.replace(' ', '-')}-{next(COUNTER)}", **WAYS[way])


def measured(person: Person, run: str, **more: str) -> dict[str, float]:
    """Seconds of each part of one launch, and of the whole."""
    log = person.folder / f"{run}.log"
    began, before = time.time(), processor_seconds()
    said = person.launches(
        "-v", starts=True, run=run, env={"ANSIBLE_LOG_PATH": str(log), "TZ": "UTC"}, **SETTINGS, **more
    )
    worked, idle = (now - then for now, then in zip(processor_seconds(), before, strict=True))
    if said.rc:
        raise SystemExit(said.out)
    hosts = [host for host in person.cluster.hosts if host.name in more.get("nodes", host.name).split(",")]
    parts = split(began, tasks_of(log.read_text()), {name: first(hosts, run, name) for name in ("up", *LATER)})
    parts |= {WORKED: worked, BUSY: 100 * worked / (worked + idle)}
    print(f"{run}: " + "  ".join(f"{name} {seconds:.1f}" for name, seconds in parts.items()), flush=True)
    if person.types("stop").rc:
        raise SystemExit("the run did not stop")
    return parts


def processor_seconds() -> tuple[float, float]:
    """Of this machine: worked, idle."""
    user, nice, system, idle, waits, *interrupts = map(float, Path("/proc/stat").read_text().split(maxsplit=8)[1:8])
    tick = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + sum(interrupts)) / tick, (idle + waits) / tick


LATER = ("plan", "start", "step")


def first(hosts: list[Host], run: str, kind: str) -> float:
    """When the last node told this for the first time."""
    found = []
    for host in hosts:
        folder = host.disk.root / HOME / "logs/runs" / run
        lines = [line for name in ("members", "events") for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        found.append(min(float(event["time"]) for event in map(json.loads, lines) if event["event"] == kind))
    return max(found)


def tasks_of(log: str) -> list[tuple[float, str]]:
    """When each task began, and the role that it is of."""
    found = re.findall(r"(?m)^(\S+ \S+) .*\| TASK \[(\w+) : ", log)
    return [(datetime.strptime(f"{at}+0000", "%Y-%m-%d %H:%M:%S,%f%z").timestamp(), role) for at, role in found]


def split(began: float, tasks: list[tuple[float, str]], told: dict[str, float]) -> dict[str, float]:
    """Each part ends where the next begins."""
    roles = {role: part for part, role in PARTS.items()}
    parts = dict.fromkeys(PARTS, 0.0)
    at, part = began, roles[""]
    for moment, role in tasks:
        parts[part] += min(moment, told["up"]) - at
        at = min(moment, told["up"])
        part = roles.get(role, roles["motley_distribute"])
    parts[part] += told["up"] - at
    at = told["up"]
    for kind in LATER:
        parts[roles[kind]] += told[kind] - at
        at = told[kind]
    return parts | {PROCESSES: told["up"] - began, WHOLE: told["step"] - began}


def table(found: Found) -> list[str]:
    rows = [line(found, part, part) for part in (*PARTS, WORKED, BUSY, PROCESSES, WHOLE)]
    rows += [beside(found), line(found, WHOLE, f"one machine alone: {WHOLE}", "one "), beside(found, "one ")]
    return table_of(
        ("part of a launch, seconds", "loading early, as Motley does", "loading once the run is there", "aim"), rows
    )


def line(found: Found, part: str, title: str, where: str = "") -> tuple[str, ...]:
    early, late = (spread([run[part] for run in found[where + way]], "{:.1f}") for way in ("early", "late"))
    return title, early, late, AIMS.get(title, "")


def beside(found: Found, where: str = "") -> tuple[str, ...]:
    pairs = zip(found[f"{where}early"], found[f"{where}late"], strict=False)
    ratios = [early[WHOLE] / late[WHOLE] for early, late in pairs]
    return "… early over late, in turns", spread(ratios, "{:.0%}"), "", ""


if __name__ == "__main__":
    sys.exit(bench(__doc__, NAME, warm_trio(), {way: partial(one, way=way) for way in WAYS}, table))
