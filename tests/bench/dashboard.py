"""Training with nobody looking on and with the live page open, in turns: a page that is looked at must cost no speed.

    make bench PARTS=dashboard

Three hosts of the lab at their shares of the processor, one long run of `tiny`. In a tab's stead the stream of the page
is read as it comes. The server is on the controller, and reads the run over SSH from the head, inside the head's share.
Its start, in which it reads all that happened so far, is counted apart.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.launch import HOME, ready
from tests.bench.page import Figures, Found, bench, spread
from tests.support import pace, torchrun
from tests.support.bootstrap import Person
from tests.support.cluster import REPOSITORY
from tests.support.tables import table as table_of

NAME = "dashboard"
RUN = "looked-at"
TURN_S, SETTLE_S = 40.0, 5.0
TITLES = {
    "steps_s": ("steps/s", "{:.2f}"),
    "median_ms": ("median step, ms", "{:.0f}"),
    "core_percent": ("server, % of a core", "{:.1f}"),
    "start_s": ("its first five seconds, s of a core", "{:.1f}"),
    "server_mb": ("server, MB", "{:.0f}"),
}
READER = """
import http.client, sys, urllib.parse
at = urllib.parse.urlsplit(sys.argv[1])
link = http.client.HTTPConnection(at.hostname, at.port)
link.request("GET", "/events", headers={"Cookie": "motley=" + urllib.parse.parse_qs(at.query)["token"][0]})
answer = link.getresponse()
while answer.read1():
    pass
"""


@contextlib.contextmanager
def training() -> Iterator[Person]:
    with ready("benchpage") as person:
        wanted: Figures = {"model": "tiny", "max_steps": 200000, "rows_per_step": 24, "max_seq_length": 64}
        said = person.launches(starts=True, run=RUN, follow="false", **wanted)
        if said.rc:
            raise SystemExit(said.out)
        pace.until(lambda: len(steps_since(person, 0.0)) > 20, 180, "it does not train")
        torchrun.quotas(person.cluster.hosts, on=True)
        time.sleep(30)  # shares follow the speeds
        yield person


def steps_since(person: Person, since: float) -> list[Figures]:
    file = person.cluster.hosts[0].disk.root / HOME / "logs/runs" / RUN / "events.jsonl"
    lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    return [event for line in lines if (event := json.loads(line))["event"] == "step" and event["time"] > since]


def turn(person: Person) -> Figures:
    time.sleep(SETTLE_S)
    return trained(person)


def trained(person: Person) -> Figures:
    since = time.time()
    time.sleep(TURN_S)
    steps = [float(event["step_s"]) for event in steps_since(person, since)]
    return {"steps": len(steps), "steps_s": len(steps) / TURN_S, "median_ms": 1000 * statistics.median(steps)}


def looked_at(person: Person) -> Figures:
    inside = ["ip", "netns", "exec", person.cluster.desk]
    env = os.environ | person.environment()
    command = [*inside, *person.command("dashboard", "--port", "0", "--run", RUN)]
    with subprocess.Popen(command, cwd=REPOSITORY, env=env, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        address = server.stdout.readline().strip()
        with subprocess.Popen([*inside, sys.executable, "-c", READER, address]) as reader:
            time.sleep(SETTLE_S)
            start_s, began = used_s(server.pid), time.monotonic()
            found = trained(person)
            core = (used_s(server.pid) - start_s) / (time.monotonic() - began)
            found |= {"core_percent": 100 * core, "start_s": start_s, "server_mb": held_mb(server.pid)}
            if reader.poll() is not None or server.poll() is not None:
                raise SystemExit("the page was not looked at to the end")
            reader.kill()
        server.terminate()
    return found


def used_s(pid: int) -> float:
    """Of the server and of the programs by which it reads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    children = [child for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(used_s(int(child)) for child in children if Path(f"/proc/{child}").exists())


def held_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1000


def table(found: Found) -> list[str]:
    rows = []
    for key, (title, form) in TITLES.items():
        each = [[run[key] for run in found[part] if key in run] for part in ("alone", "looked at")]
        rows.append((title, *(spread(values, form) if values else "" for values in each)))
    return table_of(("", "nobody looks", "a page is open"), rows)


def main() -> int:
    return bench(__doc__, NAME, training(), {"alone": turn, "looked at": looked_at}, table)


if __name__ == "__main__":
    sys.exit(main())
