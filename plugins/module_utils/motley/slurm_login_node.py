# MIT License, see LICENSE
"""Runs as jobs of Slurm, as its login node sees them. Standard library alone.

    python3 - VERB '{"home": "~/ai-cluster", …}'        (console/infra sends it on standard input)

All nodes write below one shared folder: jobs/RUN/place-N is the home of the run's Nth node, and each verb is that of
start_stop_status.py, asked of the place that knows most. Whether a run is there at all, only Slurm knows.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..train.runlog.paths import AGENT, EVENTS, LAUNCH, MEMBERS, made
from ..train.runlog.paths import logs as logs_of
from ..train.runlog.tail import Tail
from .files import read_json
from .node_replies import Look, NowLine, Places, RunFacts, Runs, SlurmJob, SlurmRun, Started, Stopped
from .run_files import agent_view, end_of, launched_start, newest_checkpoint
from .start_stop_status import clean as clean_at
from .start_stop_status import look as look_at
from .start_stop_status import main, say
from .start_stop_status import runs as runs_at

JOBS, JOB, OUTPUT = "jobs", "job.json", "output"
FRESH_S = 6.0
"""An agent writes its file each second; a shared disk may show it a little later."""
STOP_S = 55.0


def slurm(*words: str, timeout_s: float = 20) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise OSError(f"{words[0]} gave no answer within {timeout_s:g} s") from None
    if done.returncode:
        raise OSError(f"{words[0]}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


# -- what there is ---------------------------------------------------------------------------------------------------


def places(home: Path, run: str) -> list[Path]:
    folders = (home / JOBS / run).glob("place-*")
    return sorted(folders, key=lambda path: int(path.name.rpartition("-")[2]))


def names(home: Path) -> list[str]:
    return sorted(path.parent.name for path in (home / JOBS).glob(f"*/{JOB}"))


def queue() -> dict[str, SlurmJob]:
    """Run → its job, of those that wait or run; of an array each task by itself."""
    asked = slurm("squeue", "-h", "-r", "-u", str(os.getuid()), "-o", "%i|%A|%T|%j|%S|%R")
    jobs: dict[str, SlurmJob] = {}
    for line in asked.splitlines():
        shown, job, state, name, start, why = line.split("|", 5)
        run, _, place = name.removeprefix("motley-"), "", shown.partition("_")[2]
        if name.startswith("motley-"):
            jobs[f"{run}-{place}" if place.isdigit() else run] = {
                "shown": shown,
                "job": shown if place.isdigit() else job,
                "state": state,
                "start": start,
                "why": why.strip("()"),
            }
    return jobs


def newest(home: Path, jobs: dict[str, SlurmJob]) -> str:
    """The run that is meant where none is named: one that runs, else one that waits, else the last."""
    known = sorted(names(home), key=lambda name: (home / JOBS / name / JOB).stat().st_mtime, reverse=True)
    running = [name for name in known if jobs.get(name, {}).get("state") == "RUNNING"]
    return next(iter([*running, *(name for name in known if name in jobs), *known]), "")


def freshest(home: Path, run: str) -> Path:
    """The place whose agent wrote last; of those that write now the first, so that a reader stays with it."""

    def written(place: Path) -> float:
        try:
            return (logs_of(place, run) / AGENT).stat().st_mtime
        except OSError:
            return 0.0

    every_place = places(home, run)
    writing = [place for place in every_place if time.time() - written(place) < FRESH_S]
    return next(iter(writing), max(every_place, key=written, default=home / JOBS / run / "place-0"))


def look(home: Path) -> Look:
    jobs = queue()
    run = newest(home, jobs)
    place, job = freshest(home, run), jobs.get(run, {})
    found = look_at(place)
    fresh = time.time() - found["now"].get("time", 0) < FRESH_S
    checkpoints = [newest_checkpoint(one, run) for one in places(home, run)]
    state = job.get("state", "").lower()
    others = [name for name in jobs if name != run]
    found |= {
        "run": run,
        "job": job,
        "on": bool(job),
        "wanted": bool(job),
        "how": f"job {job['shown']}, {state}" + (f"; also {', '.join(others)}" if others else "") if job else "",
        "checkpoint": max(checkpoints, default=0),
        "gpus": [],
        "free_bytes": shutil.disk_usage(home).free if home.exists() else None,
    }
    if job and not fresh:
        found["now"] = {"time": time.time(), "state": "waiting", "reason": waits(job)}
    return found


def waits(job: SlurmJob) -> str:
    if job["state"] == "RUNNING":
        return f"job {job['shown']} begins on {job['why']}"
    later = f", not before {job['start']}" if job["why"] == "BeginTime" and "T" in job["start"] else ""
    return f"job {job['shown']} is {job['state'].lower()}: {job['why']}{later}"


# -- start and stop --------------------------------------------------------------------------------------------------


def start(home: Path, runs: list[str], options: list[str]) -> Started:
    """Submit what was written down; of a sweep all its runs are one job."""
    began = time.time()
    jobs = queue()
    if there := [run for run in runs if run in jobs]:
        return {"failed": f"run '{there[0]}' is job {jobs[there[0]]['shown']} already\nfix: ./motley stop"}
    try:
        job = slurm("sbatch", "--parsable", str(home / "scripts/launch_cluster.sbatch"), timeout_s=60).strip()
    except OSError as error:
        return {"failed": f"{error}\nfix: its script is {home}/scripts/launch_cluster.sbatch"}
    for run in runs:
        record = {"job": job.partition(";")[0], "time": began, "options": options}
        (home / JOBS / run / JOB).write_text(json.dumps(record))
    note = f"job {job}: it runs when Slurm has the nodes, also when nobody watches (squeue -j {job})"
    return {"run": runs[0], "pid": 0, "how": "slurm", "time": began, "up": time.time(), "note": note}


def stop(home: Path) -> Stopped:
    """Save and end the newest run's job; its batch script hands the word on to the agents."""
    began, jobs = time.time(), queue()
    run = newest(home, jobs)
    job, forced = jobs.get(run), 0
    if job:
        if job["state"] == "RUNNING":
            slurm("scancel", "--batch", "--signal=TERM", job["job"])
        else:
            slurm("scancel", job["job"])
        while run in queue() and time.time() - began < STOP_S:
            time.sleep(0.5)
        if run in queue():
            slurm("scancel", job["job"])
            forced = 1
    left = [1] if run in (now := queue()) and now[run]["state"] != "COMPLETING" else []
    return {
        "was_on": bool(job),
        "run": run,
        "script": "",
        "checkpoint": max((newest_checkpoint(place, run) for place in places(home, run)), default=0),
        "forced": forced,
        "left": left,
        "ports": [],
        "seconds": round(time.time() - began, 2),
    }


# -- reporting -------------------------------------------------------------------------------------------------------


def report(home: Path, run: str) -> None:
    """Reports as start_stop_status.report does, from the place that writes; another one where that falls silent."""
    place, next_look, off, words = Path(), 0.0, 0, ""
    logs: dict[str, Tail] = {}
    while True:
        if time.monotonic() >= next_look:
            next_look = time.monotonic() + 2
            jobs = queue()
            if (now := freshest(home, run)) != place:
                place, folder = now, logs_of(now, run)
                logs = {kind: end_of(folder / name) for kind, name in (("event", EVENTS), ("member", MEMBERS))}
                if start := launched_start(folder):
                    say("event", json.dumps(start).encode())
            view = agent_view(place, run)
            job = jobs.get(run)
            if job and time.time() - view.get("time", 0) > FRESH_S:
                view = {"time": time.time(), "state": "waiting", "reason": waits(job), "peers": {}}
            shown: NowLine = {"time": time.time(), "on": bool(job), "now": view, "wanted": bool(job)}
            off = 0 if job else off + 1
            if off == 2:
                words = last_words(home, run)
            if off >= 2:  # until whoever follows takes it for ended
                shown["words"] = words
            say("now", json.dumps(shown).encode())
        news = [(event.get("time", 0), kind, line) for kind, log in logs.items() for event, line in log.news()]
        for _, kind, line in sorted(news):
            say(kind, line)
        time.sleep(0.2)


def outputs(home: Path, run: str) -> list[Path]:
    files = (home / JOBS / run / OUTPUT).glob("*.out")
    return sorted(files, key=lambda path: path.stat().st_mtime)


def last_words(home: Path, run: str) -> str:
    words = [line for path in outputs(home, run)[-1:] for line in path.read_text(errors="replace").splitlines()]
    return "\n".join([line.strip() for line in words if line.strip()][-3:])


def logs(home: Path, lines: int = 200, follow: bool = False) -> None:
    """What the job of the newest run says, each line behind its place; becomes the program that shows it."""
    run = newest(home, queue())
    files = outputs(home, run) or [home / JOBS / run / OUTPUT / "of-no-job-yet.out"]
    os.execvp("tail", ["tail", "-n", str(lines), *(["-F"] if follow else []), str(files[-1])])


# -- results ---------------------------------------------------------------------------------------------------------


def runs(home: Path) -> Runs:
    found: dict[str, RunFacts] = {}
    jobs = queue()
    for name in names(home):
        each = [runs_at(place)["runs"].get(name) for place in places(home, name)]
        best = max(filter(None, each), key=lambda facts: (facts["done"], facts["step"]), default=None)
        if best:
            swept = read_json(logs_of(home / JOBS / name, name) / LAUNCH).get("swept") or {}
            found[name] = best | {"bytes": sum(facts["bytes"] for facts in each if facts), "swept": swept}
    on = newest(home, jobs)
    return {"runs": found, "on": on if on in jobs else ""}


def known(home: Path) -> dict[str, SlurmRun]:
    """The runs of this home, with what launch_info says of a node's runs."""
    jobs = queue()
    return {
        name: {
            "launched": read_json(logs_of(home / JOBS / name, name) / LAUNCH),
            "step": max((newest_checkpoint(place, name) for place in places(home, name)), default=0),
            "done": any(made(place, name) for place in places(home, name)),
            "changed": (home / JOBS / name / JOB).stat().st_mtime,
            "job": jobs.get(name, {}).get("shown", ""),
        }
        for name in names(home)
    }


def parts(home: Path, run: str) -> Places:
    """The homes of a run, and how Slurm is asked for one node of that kind."""
    run = run or newest(home, queue())
    options = read_json(home / JOBS / run / JOB).get("options", [])
    return {"run": run, "places": [str(place) for place in places(home, run)], "one_node": one_node(options)}


KEPT = {"p", "partition", "A", "account", "q", "qos", "C", "constraint", "reservation", "M", "clusters"}
GPU = re.compile(r"(?:gres[/:])?gpu(?:[:=].*)?")


def one_node(options: list[str]) -> list[str]:
    asked = [shlex.split(option) for option in options]
    cards = ["--gpus=1"] if cards_asked(options)[0] else []
    return [word for words in asked if named(words)[0] in KEPT for word in words] + cards


def named(option: list[str]) -> tuple[str, str]:
    """Name and value of an option, in each of the ways to write it: --nodes=3, --nodes 3, -N3, -N 3."""
    word, *behind = option
    name, _, value = word[2:].partition("=") if word.startswith("--") else (word[1:2], "", word[2:])
    return name, value or " ".join(behind)


def cards_asked(options: list[str]) -> tuple[bool, int | None]:
    """Whether a job asks for cards, and for how many on a node. Of a total over all nodes only its start shows that."""
    asks, count = False, None
    for name, value in (named(shlex.split(option)) for option in options):
        asked = [value] if name in ("gpus-per-node", "gpus-per-task") else []
        if name in ("gres", "tres-per-node"):
            asked = [item for item in value.split(",") if GPU.fullmatch(item)]
        if asked:
            number = re.search(r"(?:^|[:=])(\d+)$", asked[0])
            count = int(number[1]) if number else 1
        asks = asks or bool(asked) or name in ("G", "gpus")
    return asks, count


def clean(home: Path, names: list[str]) -> dict[str, dict[str, int]]:
    jobs = queue()
    freed: dict[str, int] = {}
    for name in [name for name in names if name not in jobs and "/" not in name]:
        sizes = [clean_at(place, [name])["freed"].get(name, 0) for place in places(home, name)]
        freed[name] = sum(sizes)
    return {"freed": freed}


def forget(home: Path) -> dict[str, bool]:
    return {"was": False}


VERBS: dict[str, Callable[..., Any]] = {
    verb.__name__: verb for verb in (look, start, stop, report, logs, runs, parts, clean, forget)
}


if __name__ == "__main__":
    main(VERBS)
