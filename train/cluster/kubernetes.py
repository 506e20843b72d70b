"""This pod's part of a Job of Kubernetes: model and rows, and its agent. For the objects of console/infra/kubernetes.

    python -m train kubernetes prepare    fetch the model and make the rows: once on a shared volume, or on each machine
    python -m train kubernetes wait       until another pod has done so on the shared volume
    python -m train kubernetes join       be the run's agent here

Pod N of the Job is the run's node N, whatever address it has at the moment, and its home on the volume is
jobs/RUN/place-N. What the launch wrote is in $MOTLEY_CONFIG, from the ConfigMap.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Required, TypedDict

from train.cluster.job_home import environment, furnish
from train.cluster.slurm_job_nodes import nic_of
from train.errors import BadInput
from train.files import write_atomic
from train.layout import BASE_MODELS, ROWS
from train.plan.launch.cluster_config import ClusterConfig, checked
from train.plan.settings.read_settings import read_yaml
from train.plan.settings.rewards import with_rows
from train.runlog import paths
from train.runlog.tail import read

JOB, PREPARED, ALIVE = "job.json", "prepared.json", ".preparing"
CLUSTER, SETTINGS = Path(paths.CLUSTER).name, Path(paths.SETTINGS).name
NEEDED = ("MOTLEY_CONFIG", "MOTLEY_HOME")
ALIVE_S, LOOK_S, SAY_S = 10.0, 1.0, 60.0
SILENT_S = 1800.0
"""How long the preparing pod may be silent: image, machine and two more tries may take their time; then it is gone."""
LINGER_S = 2.0
"""How long the container stays: who follows the run from outside reads its last lines before it is gone."""
LAST_BYTES = 3500
"""Most bytes of the last words: Kubernetes keeps the last 4096 of what a container leaves as its message."""


class Job(TypedDict):
    """What the launch has written for all pods of a run."""

    run: str
    launch: str
    """Names this very launch."""
    prepare: str
    """The job of Kubernetes that makes model and rows."""
    steps: Sequence[Sequence[str]]


class Prepared(TypedDict, total=False):
    """What the pod that prepares has left."""

    launch: Required[str]
    rows: str
    """The name of the folder of rows."""
    failed: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", choices=("prepare", "wait", "join"))


def main(args: argparse.Namespace) -> int:
    env = os.environ
    if lacking := [name for name in NEEDED if name not in env]:
        raise BadInput(f"this is no pod of a run: {lacking[0]} is not set", fix="./motley launch --infra kubernetes")
    home, config = Path(env["MOTLEY_HOME"]), Path(env["MOTLEY_CONFIG"])
    job = json.loads((config / JOB).read_text())
    if args.verb == "prepare":
        return prepare(home, job)
    if args.verb == "wait":
        return wait(home, job)
    place = home / "jobs" / job["run"] / f"place-{int(env['JOB_COMPLETION_INDEX'])}"
    furnish_pod(place, home, config, job, env)
    code = run_agent(place, env)
    leave_words(place, job["run"], env.get("MOTLEY_LAST_WORDS", ""))
    time.sleep(LINGER_S)
    return code


# -- model and rows --------------------------------------------------------------------------------------------------


def prepare(home: Path, job: Job) -> int:
    """Runs the job's steps: commands that do nothing where their result is there; the last one makes the rows."""
    folder = home / "jobs" / job["run"]
    folder.mkdir(parents=True, exist_ok=True)
    outcome: Prepared = {"launch": job["launch"]}
    with (folder / ".prepare.lock").open("w") as lock, shown_alive(folder):
        fcntl.flock(lock, fcntl.LOCK_EX)  # two pods of the run may be on this machine
        for step in job["steps"]:
            print(f"python -m train {' '.join(step)}", file=sys.stderr, flush=True)
            command = [sys.executable, "-m", "train", *step]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            print(done.stdout, end="", flush=True)
            answer = last_line(done.stdout)
            if done.returncode:
                outcome["failed"] = str((answer.get("failures") or [f"{step[0]} ended with {done.returncode}"])[0])
                break
            outcome["rows"] = Path(str(answer.get("folder", ""))).name
        write_atomic(folder / PREPARED, json.dumps(outcome).encode())
    return 1 if "failed" in outcome else 0


def last_line(text: str) -> dict[str, Any]:
    with contextlib.suppress(IndexError, ValueError):
        return dict(json.loads(text.strip().splitlines()[-1]))
    return {}


def prepared(home: Path, job: Job) -> Prepared | None:
    """What `prepare` of this very launch has left; None until then."""
    with contextlib.suppress(OSError, ValueError):
        outcome: Prepared = json.loads((home / "jobs" / job["run"] / PREPARED).read_text())
        return outcome if outcome["launch"] == job["launch"] else None
    return None


@contextlib.contextmanager
def shown_alive(folder: Path) -> Iterator[None]:
    """Changes a file while the steps run, so that whoever waits on another machine sees it."""
    over = threading.Event()

    def touch() -> None:
        while not over.wait(ALIVE_S):
            with contextlib.suppress(OSError):  # a volume that is full now may have room later
                (folder / ALIVE).write_text(str(time.time()))

    thread = threading.Thread(target=touch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def wait(home: Path, job: Job) -> int:
    alive = home / "jobs" / job["run"] / ALIVE
    seen, since, announced = "", time.monotonic(), time.monotonic()
    while not (ready := prepared(home, job)):
        time.sleep(LOOK_S)
        now, sign = time.monotonic(), alive.read_text() if alive.exists() else ""
        seen, since = (sign, now) if sign != seen else (seen, since)
        if now - since > SILENT_S:
            raise BadInput(
                f"no sign of job {job['prepare']} for {SILENT_S / 60:.0f} min: it makes model and rows",
                f"see: kubectl describe job {job['prepare']}",
            )
        if now - announced > SAY_S:
            announced = now
            print(f"job {job['prepare']} makes model and rows; this pod waits for it", file=sys.stderr, flush=True)
    if "failed" in ready:
        raise BadInput(
            f"model and rows could not be made: {ready['failed']}", f"see: kubectl logs job/{job['prepare']}"
        )
    return 0


# -- the agent -------------------------------------------------------------------------------------------------------


def furnish_pod(place: Path, home: Path, config: Path, job: Job, env: Mapping[str, str]) -> None:
    ready = prepared(home, job)
    if not ready or not ready.get("rows"):
        raise BadInput(f"there are no rows of this launch below {home}", fix="its first container makes them or waits")
    messages = env.get("MOTLEY_MESSAGES", "")
    cluster, launch = cluster_of(config, env), config / paths.LAUNCH
    furnish(place, cluster, home, (BASE_MODELS, "data"), launch=launch, messages=messages)
    rows = str(home / ROWS / ready["rows"])
    settings = with_rows(read_yaml(config / SETTINGS, "config file"), rows) | {"home": str(place)}
    write_atomic(place / paths.SETTINGS, json.dumps(settings).encode())  # JSON is YAML


def cluster_of(config: Path, env: Mapping[str, str]) -> ClusterConfig:
    """The others by the names of the Service, this node by the address that its pod has."""
    place, address = int(env["JOB_COMPLETION_INDEX"]), env["MOTLEY_ADDRESS"]
    cluster = checked(read_yaml(config / CLUSTER, "cluster file"))
    nodes = list(cluster.nodes)
    nodes[place] = replace(nodes[place], address=address)
    nic = env.get("GLOO_SOCKET_IFNAME") or nic_of(address)
    node = nodes[place].name
    return replace(cluster, node=node, token=env["MOTLEY_TOKEN"], nodes=tuple(nodes), interface=nic)


def run_agent(place: Path, env: Mapping[str, str]) -> int:
    """Runs the agent, as the container's first process: hands signals on, and reaps whoever lost its parent."""
    pids: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: hand_on(pids, number))
    command = [sys.executable, "-m", "train", "agent"]
    command += ["--cluster", str(place / paths.CLUSTER), "--config", str(place / paths.SETTINGS)]
    agent = subprocess.Popen(command, env={**environment(place), **env, "MOTLEY_HOME": str(place)})
    pids.append(agent.pid)
    while True:
        pid, status = os.wait()
        if pid == agent.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def hand_on(pids: Sequence[int], number: int) -> None:
    """Hands a signal on to the agent; where none has been started yet, this process ends."""
    if not pids:
        sys.exit(128 + number)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def leave_words(place: Path, run: str, file: str) -> None:
    """Writes how the run ended, where `kubectl get pod` still shows it when nothing can be asked any more."""
    lines: list[str] = []
    for line in ending(paths.logs(place, run)):
        if sum(map(len, lines)) + len(line) < LAST_BYTES:
            lines.append(line)
    if file:
        with contextlib.suppress(OSError):
            Path(file).write_text("\n".join(lines) + "\n")


def ending(folder: Path) -> Iterator[str]:
    for prefix, name, kinds in (
        ("member", paths.MEMBERS, ("ended",)),
        ("event", paths.EVENTS, ("done", "failed", "stopped")),
        ("event", paths.EVENTS, ("step",)),
    ):
        events = read(folder / name)
        last = [event for event in events if event.get("event") in kinds][-1:]
        yield from (f"{prefix} {json.dumps(event)}" for event in last)
