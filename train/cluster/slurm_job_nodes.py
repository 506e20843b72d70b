"""This node's part of a job of Slurm: who takes part, and its agent. For scripts/launch_cluster.sbatch.

    srun env/bin/python -m train slurm tell      one line of JSON about this node
    srun env/bin/python -m train slurm join      becomes the run's agent here
    env/bin/python -m train slurm over           exit code 0: the run is done, 1: it failed, 3: it can go on
    env/bin/python -m train slurm again          exit code 0: the job is to be queued again, 1: that has brought nothing

The nodes of a job are the run's nodes: named by hostname, in the job's order, the batch host first. Each has its home
in the job's folder by its place there (place-0, place-1 …), not by its hostname: a job that is queued again may get
other machines and still finds what was saved.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import fcntl
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict

from train.cluster.job_home import environment, furnish
from train.cluster.lost_slurm_script import BEAT, Beat, Node, run_agent
from train.errors import BadInput
from train.files import write_atomic
from train.layout import BASE_MODELS
from train.plan.launch.cluster_config import ClusterConfig, Member
from train.runlog import paths
from train.runlog.secret import secret_of

PORTS = (30000, 32700)
"""The ports for all jobs, below the kernel's own range (ip_local_port_range): its connections take none of these."""
PORTS_OF_A_JOB = 30
SIOCGIFCONF = 0x8912
DONE, FAILED, GOES_ON = 0, 1, 3
STARTS = "starts.json"
IN_VAIN = 3
"""How many starts of a job after one another that made no new step are enough."""
WHY = """three starts after one another made no new step (saved: step {step}), so it is not queued again
see: ./motley logs
fix: a longer --time in slurm_options"""


class Starts(TypedDict, total=False):
    """The last start of a job."""

    job: str
    step: int
    """The step that was saved."""
    in_vain: int
    """How many starts in a row have ended there."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", choices=("tell", "join", "over", "again"))


def main(args: argparse.Namespace) -> int:
    env = os.environ
    if "SLURM_JOB_ID" not in env or "MOTLEY_JOB" not in env:
        raise BadInput("this is no job of Slurm", fix="sbatch scripts/launch_cluster.sbatch starts one")
    job = Path(env["MOTLEY_JOB"])
    if args.verb == "tell":
        print(json.dumps(about(env, address(name_of(env)))))
    elif args.verb == "over":
        return over(job, env["MOTLEY_RUN"], since=float(env["MOTLEY_BEGAN"]))
    elif args.verb == "again":
        return 0 if again(env, job) else FAILED
    else:
        return join(env, job)
    return 0


def name_of(env: Mapping[str, str]) -> str:
    return env.get("SLURMD_NODENAME") or socket.gethostname()


def address(name: str) -> str:
    """The address that leads to the other nodes: what their names resolve to, never loopback."""
    with contextlib.suppress(OSError):
        for *_, where in socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM):
            if not str(where[0]).startswith("127."):
                return str(where[0])
    raise BadInput(f"{name} has no address but loopback", "where: its own /etc/hosts, or the cluster's DNS")


def about(env: Mapping[str, str], at: str) -> dict[str, object]:
    """What a node tells of itself; `id`: its number in the job."""
    return {"id": int(env["SLURM_NODEID"]), **asdict(Member(name=name_of(env), address=at, processes=processes(env)))}


def processes(env: Mapping[str, str]) -> int:
    """How many processes train here: one for each card that the job has here; cards may differ from node to node."""
    return int(env.get("MOTLEY_PROCESSES") or env.get("SLURM_GPUS_ON_NODE") or 1)


def ports(job_id: int) -> tuple[int, tuple[int, int]]:
    """The heartbeat's port, and those of the job's groups: two jobs may share a node."""
    places = (PORTS[1] - PORTS[0]) // PORTS_OF_A_JOB
    first = PORTS[0] + job_id % places * PORTS_OF_A_JOB
    return first, (first + 1, first + PORTS_OF_A_JOB - 1)


def cluster_of(env: Mapping[str, str], nodes: Iterable[Member], nic: str) -> ClusterConfig:
    """The cluster as this node sees it."""
    heartbeat, groups = ports(int(env["SLURM_JOB_ID"]))
    return ClusterConfig(
        run=env["MOTLEY_RUN"],
        node=name_of(env),
        token=env["MOTLEY_TOKEN"],
        nodes=tuple(nodes),
        interface=nic,
        presence_port=heartbeat,
        group_ports=groups,
    )


def nodes_of(lines: str) -> dict[int, Member]:
    """The nodes of the job by their place in it, in its order, from the line of each."""
    facts = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    by_place = {fact.pop("id"): Member(**fact) for fact in facts}
    return {place: by_place[place] for place in sorted(by_place)}


def join(env: Mapping[str, str], job: Path) -> int:
    nodes = nodes_of(env["MOTLEY_NODES"])
    place, own = next((place, node) for place, node in nodes.items() if node.name == name_of(env))
    home = job / f"place-{place}"
    nic = nic_of(own.address)
    launch = paths.logs(job, env["MOTLEY_RUN"]) / paths.LAUNCH
    messages = secret_of(job / paths.SECRET).messages
    cluster, shared = cluster_of(env, nodes.values(), nic), Path(env["MOTLEY_HOME"])
    furnish(home, cluster, shared, (BASE_MODELS, "data", "env", "code"), launch=launch, messages=messages)
    cores = len(os.sched_getaffinity(0))
    own_settings = {"MOTLEY_NODE": own.name, "GLOO_SOCKET_IFNAME": nic, "NCCL_SOCKET_IFNAME": f"={nic}"}
    threads = {"OMP_NUM_THREADS": str(max(1, cores // own.processes))}
    command = [sys.executable, "-m", "train", "agent"]
    command += ["--cluster", str(home / paths.CLUSTER), "--config", str(job / paths.SETTINGS)]
    everything = {**threads, **env, **own_settings, **environment(home)}
    if place == 0:
        os.execve(sys.executable, command, everything)

    def ended() -> bool:
        return over(job, env["MOTLEY_RUN"], since=float(env["MOTLEY_BEGAN"])) != GOES_ON or not again(env, job)

    status = paths.logs(home, env["MOTLEY_RUN"]) / paths.AGENT
    return run_agent(command, Node(place, everything, status, ended), Beat(job / BEAT))


def nic_of(own: str) -> str:
    """The network card that has this address, as the kernel lists them."""
    size, entry = 4096, 40
    buffer = array.array("B", bytes(size))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as kernel:
        request = struct.pack("iL", size, buffer.buffer_info()[0])
        filled: int = struct.unpack("iL", fcntl.ioctl(kernel.fileno(), SIOCGIFCONF, request))[0]
    listed = buffer.tobytes()[:filled]
    for start in range(0, filled, entry):
        name = listed[start : start + 16].split(b"\0")[0].decode()
        if socket.inet_ntoa(listed[start + 20 : start + 24]) == own:
            return name.partition(":")[0]
    raise BadInput(f"no network card here has {own}", "where: this machine's name leads to an address of another one")


def over(job: Path, run: str, since: float) -> int:
    """How the run itself ended, as any place of this start of the job says."""
    states = set()
    for file in job.glob(f"place-*/logs/runs/{run}/{paths.AGENT}"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            facts = json.loads(file.read_text())
            states |= {facts["state"]} if facts["time"] >= since else set()
    return DONE if "done" in states else FAILED if "failed" in states else GOES_ON


def again(env: Mapping[str, str], job: Path) -> bool:
    """Whether the job is to be queued again, now that a start of it has left; else the run has failed, and says why."""
    starts: Starts = {}
    with contextlib.suppress(OSError, ValueError):
        starts = json.loads((job / STARTS).read_text())
    starts = next_start(starts, env["SLURM_JOB_ID"], saved_step(job, env["MOTLEY_RUN"]))
    with contextlib.suppress(OSError):  # a full disk: it is not counted
        write_atomic(job / STARTS, json.dumps(starts).encode())
    if starts["in_vain"] < IN_VAIN:
        return True
    why = WHY.format_map(starts)
    print(why, flush=True)
    status = paths.logs(job / "place-0", env["MOTLEY_RUN"]) / paths.AGENT
    with contextlib.suppress(OSError):
        write_atomic(status, json.dumps({"state": "failed", "time": time.time(), "reason": why}).encode())
    return False


def next_start(last: Starts, job: str, step: int) -> Starts:
    """What the next start of a job is told: the step that is saved, and how many in a row have ended there."""
    before = last.get("in_vain", 0) if last.get("job") == job else 0
    return {"job": job, "step": step, "in_vain": 0 if step != last.get("step", 0) else before + 1}


def saved_step(job: Path, run: str) -> int:
    names = [path.name[5:] for path in job.glob(str(paths.checkpoints(Path("place-*"), run) / "step-*"))]
    return max((int(name) for name in names if name.isdigit()), default=0)
