"""`./motley demo --infra slurm`: from nothing to an adapter on somebody else's Slurm, with a time limit in between.

Three simulated machines with Debian's own Slurm (lab/slurm.py). Everything it does is what a person would type who has
an account there. The job's time is shorter than the run: Slurm itself sends the signal, and runs it again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys

from lab import demo, demo_courses, needs, slurm
from lab.demo import RESULTS, quietly, run_apart, stage
from lab.demo_courses import STATE
from lab.demo_sites import ROOT, RUN, Simulated
from lab.host import SHARED
from lab.lab import Lab
from lab.profile import CLUSTER_HOME, USER
from lab.shell import LabError

SHORTEST, LONGEST = 3, 6
"""Minutes of a job. A start takes a busy machine most of the first one, and the signal may come a minute early."""
STEPS_A_MINUTE = 260
"""More than an idle machine makes: the run must not be done before its time is over."""
COURSE = demo_courses.FAST.settings | {"save_every": 50, "eval_every": 100}
SUITE = "bookworm"
"""Its own Slurm, whatever this machine's suite is."""
HOME = f"{SHARED}/{USER}/ai-cluster"


class Account(Simulated):
    """On the same machines, with a Slurm on them."""

    def __init__(self) -> None:
        super().__init__(SUITE, ready_made=True)
        self.layers = ["train", "slurm"]
        self.inventory = STATE / "inventory"

    def open(self) -> Lab:
        self.up()
        lab = self.up_lab
        slurm.start(lab)
        link = f"mkdir -p {HOME} && ln -sfn {CLUSTER_HOME}/env {HOME}/env"  # as a first launch brings it
        slurm.slurm(lab.hosts[0], "sh", "-c", link)
        self.inventory.mkdir(parents=True)
        (self.inventory / "group_vars").symlink_to(ROOT / "inventory/slurm/group_vars")
        (self.inventory / "hosts.yml").write_text(json.dumps(slurm.inventory(lab, STATE / "state")))
        return lab

    def console(self, verb: str, *words: str) -> list[str]:
        command = [sys.executable, "-m", "console", verb, "--inventory", str(self.inventory), *words]
        return ["ip", "netns", "exec", self.place.controller, *command]


def main() -> int:
    if missing := needs.what_is_missing():
        raise LabError("\n".join([*missing, "Slurm needs real hosts: there is no demo of it without root"]), code=2)
    return demo.played(lambda: show(Account()), "./motley demo --infra slurm")


def fitting() -> tuple[int, int]:
    """Minutes of a job and steps of the run, for a machine that has also other things to do."""
    busy = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    minutes = min(LONGEST, SHORTEST + int(busy))
    return minutes, int(STEPS_A_MINUTE * minutes / (1 + busy))


def show(site: Account) -> int:
    minutes, steps = fitting()
    for folder in (STATE, RESULTS / RUN):
        shutil.rmtree(folder, ignore_errors=True)
    STATE.mkdir(parents=True)
    print("motley demo · an existing Slurm cluster, of three simulated machines on this one", flush=True)
    print(
        f"  A job may take {minutes} minutes here, the run takes longer: Slurm ends its job, and starts it again.",
        flush=True,
    )
    print("  Left out: graphics cards; two minutes of waiting that a real Slurm puts between two starts.", flush=True)
    try:
        demo.end_offspring()
        site.clear()
        with stage("tools", "downloading programs: the first time takes some minutes"):
            site.fetch_tools("tiny")
        with stage("machines", "three machines with Slurm") as done:
            lab = site.open()
            done.append(lab.hosts[0].run("sinfo", "-hN", "-o", "%N %G").strip().replace("\n", " · "))
        train(site, lab, minutes, steps)
        with stage("report", "results fetched and put on one page"):
            quietly(site, "fetch", site.console("fetch", "--run", RUN))
            quietly(
                site, "report", [sys.executable, "-m", "console", "report", "--run", RUN, "--results", str(RESULTS)]
            )
        return told(lab)
    finally:
        demo.leave_nothing(site.down)


def train(site: Account, lab: Lab, minutes: int, steps: int) -> None:
    options = f"--nodes=3 --gpus=4 --time={minutes} --signal=B:USR1@20"
    print("  training   a tiny model on the help texts of Python; plan and steps as launch prints them:", flush=True)
    wanted = {
        "model": "tiny",
        "dataset": "stdlib-qa",
        "run": RUN,
        "slurm_options": options,
        **COURSE,
        "max_steps": steps,
    }
    words = [word for name, value in wanted.items() for word in ("-e", f"{name}={value}")]
    if run_apart(site.console("launch", *words), environment=site.environment):
        raise LabError(f"the run did not come to its end; see above\n{lab.hosts[0].outcome('sinfo', '-N').stdout}")


def told(lab: Lab) -> int:
    """What was promised, or an error."""
    jobs = lab.hosts[0].run("scontrol", "-o", "show", "job")
    restarts = max(int(count) for count in re.findall(r"Restarts=(\d+)", jobs))
    receipt = json.loads((RESULTS / RUN / "receipt.json").read_text())
    same = receipt["adapter_same_on"]
    if not restarts:
        raise LabError(
            "the run was done before its job's time was over: nothing was proven of that\nfix: the same again"
        )
    if len(same) != 3 or not (RESULTS / RUN / "adapter/adapter_model.safetensors").exists():
        raise LabError(f"the adapter is the same on {', '.join(same) or 'no node'} only")
    print(f"  done       started again {restarts} × by Slurm's time limit; one adapter, the same on all three nodes")
    home = (RESULTS / RUN).relative_to(ROOT)
    print(f"  adapter    {home}/adapter   report: {home}/report.html")
    return 0
