# MIT License, see LICENSE
"""A run on one node: is one running, start it, stop it, report it. Standard library alone.

    python3 - VERB '{"home": "~/ai-cluster", …}'        (console/infra sends it on standard input)

No verb needs root. The unit motley-run.path, once installed by bootstrap, starts motley-run.service as long as the file
config/run-wanted is there; who owns that file starts and stops. The processes of a run are known by MOTLEY_HOME in
their environment, so an orphan and a run by hand are found as well; nothing is ever found by a pattern of its name.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from ..train.files import file_hash
from ..train.nvidia_smi import Silent, table
from ..train.runlog.paths import (
    AGENT,
    EVENTS,
    LAUNCH,
    MEMBERS,
    OUTPUT,
    PRELOAD,
    THEN,
    UNIT,
    WANTED,
    checkpoints,
    made,
)
from ..train.runlog.paths import logs as logs_of
from ..train.runlog.secret import forget_messages
from .change_queue import enqueue, leave, queue, waiting
from .files import read, read_json
from .node_replies import Begun, Event, Hashes, Launched, Look, NowLine, RunFacts, Runs, Started, Stopped
from .pausing import pause, paused, unpause
from .run_files import (
    agent_view,
    end_of,
    kept_files,
    known_runs,
    launched_start,
    more,
    named_run,
    newest_checkpoint,
    newest_run,
    pack,
    part,
    saving_s,
    size_of,
)
from .run_processes import agents_of, end, listening, processes, run_on
from .run_unit import leaving, unit_of
from .waking import wake

GPU_FIELDS = ["name", "temperature.gpu", "utilization.gpu", "power.draw", "memory.used", "memory.total"]
OUT = "logs/run.out"
UNLOAD_S = 5.0
SAVE_S = 6.0
"""A small model's workers, and their agent; a large one's take as long as their agent says."""
GO_S = 2.5
"""The time to stop what is beside saving."""
KEEP_S = 45.0
"""Beyond it, for an agent that still says how it is: it may be bringing the last checkpoint to a slow disk."""
FRESH_S = 3.0
LATELY = 30
"""The steps by which the time left is told."""
AGAIN_S = 30.0


# -- what runs -------------------------------------------------------------------------------------------------------


def look(home: Path) -> Look:
    """How it is here, in one answer."""
    here = processes(home)
    agents = agents_of(here)
    run = named_run(home) if here else newest_run(home)
    folder = logs_of(home, run)
    events, members = (end_of(folder / name).events() for name in (EVENTS, MEMBERS))
    steps = [event for event in events if event.get("event") in ("step", "piece")]
    starts = [event for event in events if event.get("event") == "start"]
    pieces = [event for event in steps if event["event"] == "piece"]
    ups = [event["time"] for event in members if event.get("event") == "up"]
    return {
        "time": time.time(),
        "on": bool(here),
        "agent": agents[0] if agents else 0,
        "how": next((facts["how"] for facts in here.values()), ""),
        "processes": len(here),
        "wanted": (home / WANTED).exists(),
        "run": run,
        "now": agent_view(home, run),
        "start": without(starts[-1] if starts else launched_start(folder), ("identity", "reasons")),
        "step": steps[-1] if steps else {},
        "took_s": [] if pieces else [step["step_s"] for step in steps[-LATELY:] if "step_s" in step],
        "events": [event for event in events if event.get("event") in ("failed", "done", "stopped", "warning")][-3:]
        + pieces[-LATELY:],  # several machines do them at once: what they take is what lies between
        "members": members[-8:],
        "since": ups[-1] if ups else 0,
        "checkpoint": newest_checkpoint(home, run),
        "paused": paused(home),
        "waiting": waiting(home),
        "free_bytes": shutil.disk_usage(home).free if home.exists() else None,
        "gpus": gpus() if not here else [],
    }


def gpus() -> list[dict[str, str]]:
    try:
        return table("gpu", GPU_FIELDS, timeout_s=2)
    except Silent:
        return []


# -- start and stop --------------------------------------------------------------------------------------------------


def start(home: Path, run: str, managed: bool = True, wait_s: float = 8.0) -> Started:
    """Start this node's part, by its unit where it has one, else as a process of its own session."""
    began = time.time()
    if processes(home):
        return {"failed": f"a run is running already: '{named_run(home)}'\nfix: ./motley stop"}
    unit = unit_of(home)
    if unit == "other":
        return {"failed": f"{UNIT} here is for another folder than {home}\nfix: ./motley bootstrap --phase run"}
    (home / THEN).unlink(missing_ok=True)  # what was to follow the run before
    logs_of(home, run).mkdir(parents=True, exist_ok=True)
    if unit == "ours":
        while leaving() and time.time() - began < wait_s:  # the last thing it does takes run-wanted away
            time.sleep(0.05)
        (home / WANTED).write_text(f"{run}\n")  # motley-run.path sees it
    else:
        detach(home)
    while time.time() - began < wait_s:
        here = processes(home)
        agents = agents_of(here)
        if agents and not (home / PRELOAD).exists():  # one that was there before has taken the run
            how = here[agents[0]]["how"]
            note = ""
            if how != "unit" and managed:
                note = f"it has no {UNIT}: it will not continue after a reboot (./motley bootstrap --phase run)"
            return {"run": run, "pid": agents[0], "how": how, "time": began, "up": time.time(), "note": note}
        time.sleep(0.05)
    (home / WANTED).unlink(missing_ok=True)
    why = last_words(home) or f"scripts/launch_cluster.sh gave no sign within {wait_s:.0f} s"
    return {"failed": f"the run did not start: {why}\nfix: try it by hand there: {home}/scripts/launch_cluster.sh"}


def detach(home: Path) -> None:
    """A session of its own: it outlives whoever started it, and nothing but the launch starts it again."""
    with (home / OUT).open("wb") as out:
        subprocess.Popen(
            [str(home / "scripts/launch_cluster.sh")],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=dict(os.environ, MOTLEY_STARTED="launch"),
            start_new_session=True,
            cwd=home,
        )


def stop(home: Path) -> Stopped:
    """Save, leave, and look whether anything is left. A later boot starts nothing either."""
    began = time.time()
    run, was_on = named_run(home), bool(run_on(home))
    for file in (WANTED, THEN, PRELOAD):
        (home / file).unlink(missing_ok=True)
    here = processes(home)
    for pid in agents_of(here) or here:  # the agent lets its workers save; orphans are asked themselves
        end(pid, signal.SIGTERM)
    forced = []
    patience_s = max(SAVE_S, saving_s(home, run) + GO_S)
    while processes(home) and time.time() - began < patience_s + (KEEP_S if keeps(home, run) else 0):
        time.sleep(0.1)
    if left := processes(home):
        forced = sorted(left)
        for pid in forced:
            end(pid, signal.SIGKILL)
    deadline = time.time() + 2
    while (left := processes(home)) and time.time() < deadline:
        time.sleep(0.05)
    return {
        "was_on": was_on,
        "run": run,
        "script": agent_view(home, run).get("script", ""),
        "checkpoint": newest_checkpoint(home, run),
        "forced": len(forced),
        "left": sorted(left),
        "ports": listening(home),
        "seconds": round(time.time() - began, 2),
    }


def unload(home: Path) -> dict[str, str]:
    """What was being loaded for a launch that is refused or broken off ends by itself; a run that is wanted stays."""
    (home / PRELOAD).unlink(missing_ok=True)
    deadline = time.time() + UNLOAD_S
    while not (home / WANTED).exists() and any(one["how"] == "unit" for one in processes(home).values()):
        if time.time() > deadline:
            break
        time.sleep(0.05)
    return {}


def expire(home: Path, after_s: float) -> dict[str, float]:
    """Stop whatever runs here after so long, and from then on: a process of its own session, which nobody waits for."""
    end_at = time.clock_gettime(time.CLOCK_BOOTTIME) + after_s
    if os.fork() == 0:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        while True:
            left = end_at - time.clock_gettime(time.CLOCK_BOOTTIME)
            time.sleep(min(30.0, left) if left > 0 else 0)
            if left <= 0:
                stop(home)
                time.sleep(AGAIN_S)
    return {"after_s": after_s}


def keeps(home: Path, run: str) -> bool:
    """Whether an agent without workers is at work: it writes down each second how it is."""
    if any(facts["part"] == "worker" for facts in processes(home).values()):
        return False
    try:
        return time.time() - (logs_of(home, run) / AGENT).stat().st_mtime < FRESH_S
    except OSError:
        return False


# -- reporting -------------------------------------------------------------------------------------------------------


def report(home: Path, run: str) -> None:
    """Both event logs, what a script prints, and the agent's view as they grow, until nobody listens any more."""
    folder = logs_of(home, run)
    logs = {kind: end_of(folder / name) for kind, name in (("event", EVENTS), ("member", MEMBERS), ("out", OUTPUT))}
    if start := launched_start(folder):  # of a long run it is not in the end of its event log
        say("event", json.dumps(start).encode())
    off, next_view, words = 0, 0.0, ""
    while True:
        news = [(event.get("time", 0), kind, line) for kind, log in logs.items() for event, line in log.news()]
        for _, kind, line in sorted(news):
            say(kind, line)
        if time.monotonic() >= next_view:
            next_view = time.monotonic() + 1
            on = bool(processes(home))
            off = 0 if on else off + 1
            wanted = (home / WANTED).exists()
            view: NowLine = {"time": time.time(), "on": on, "now": agent_view(home, run), "wanted": wanted}
            if off == 3:
                words = last_words(home)
            if off >= 3:  # until whoever follows takes it for ended
                view["words"] = words
            say("now", json.dumps(view).encode())
        time.sleep(0.2)


def say(kind: str, line: bytes) -> None:
    try:
        sys.stdout.buffer.write(kind.encode() + b" " + line + b"\n")
        sys.stdout.buffer.flush()
    except OSError:
        os._exit(0)


def logs(home: Path, lines: int = 200, follow: bool = False) -> None:
    """The unit's journal, or the messages of a run without a unit; becomes the program that shows it."""
    more = ["-f"] if follow else []
    if unit_of(home) == "ours":
        os.execvp("journalctl", ["journalctl", "-q", "-u", UNIT, "-o", "cat", "-n", str(lines), "--no-pager", *more])
    os.execvp("tail", ["tail", "-n", str(lines), *(["-F"] if follow else []), str(home / OUT)])


def last_words(home: Path) -> str:
    """The run's last messages, where it ended with nothing in its event logs."""
    words = []
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if unit_of(home) == "ours":
            ask = ["journalctl", "-q", "-u", UNIT, "-o", "cat", "-n", "12", "--no-pager", "_UID=" + str(os.getuid())]
            words = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=5).stdout.splitlines()
        else:
            words = read(home / OUT).splitlines()
    words = [line.strip() for line in words if line.strip()]
    return "\n".join(words[-3:])


# -- clean up --------------------------------------------------------------------------------------------------------


def runs(home: Path) -> Runs:
    found: dict[str, RunFacts] = {}
    for name in known_runs(home):
        folder, kept = logs_of(home, name), checkpoints(home, name)
        events = end_of(folder / EVENTS).events()
        steps = [event for event in events if event.get("event") == "step"]
        starts = [event for event in events if event.get("event") == "start"]
        start = starts[-1] if starts else launched_start(folder)
        launched, agent = read_json(folder / LAUNCH), agent_view(home, name)
        script = agent.get("script", "")
        found[name] = {
            "step": max(newest_checkpoint(home, name), steps[-1]["step"] if steps else 0),
            "steps": start.get("total_steps", 0),
            "loss": steps[-1].get("loss") if steps else None,
            "reward": steps[-1].get("rollout", {}).get("reward") if steps else None,
            "time": max((e["time"] for e in [*events, *([agent] if script else [])]), default=0)
            or (kept.stat().st_mtime if kept.exists() else 0),
            "done": made(home, name) is not None or (bool(script) and agent["state"] == "done"),
            "script": script,
            "checkpoint": newest_checkpoint(home, name),
            "bytes": size_of(kept),
            "model": (launched.get("model") or {}).get("name", ""),
            "launched": cast(Launched, {key: launched[key] for key in ("time", "given", "asked") if key in launched}),
        }
    return {"runs": found, "on": run_on(home), "waiting": waiting(home)}


def clean(home: Path, names: list[str]) -> dict[str, dict[str, int]]:
    """Take the checkpoints of these runs away; results and event logs stay."""
    on = run_on(home)
    freed = {}
    for name in names:
        folder = checkpoints(home, name)
        if name != on and "/" not in name and not name.startswith(".") and folder.is_dir():
            freed[name] = size_of(folder)
            shutil.rmtree(folder)
    return {"freed": freed}


def forget(home: Path) -> dict[str, bool]:
    """The address of motley_notify: the nodes are not to send any more."""
    return {"was": forget_messages(home)}


def hashes(home: Path, run: str) -> Hashes:
    files = {str(path.relative_to(home)): file_hash(path) for path in kept_files(home, run)}
    script = agent_view(home, run).get("script", "")
    return {"files": files, "run": run, "on": bool(processes(home)) and named_run(home) == run, "script": script}


def enqueue_here(home: Path, change: str, node: str, launch: str, managed: bool) -> Begun:
    return enqueue(home, change, node, lambda home, run: start(home, run, managed), launch)


def without(facts: Event, names: tuple[str, ...]) -> Event:
    return {name: value for name, value in facts.items() if name not in names}


VERBS: dict[str, Callable[..., Any]] = {
    "look": look,
    "start": start,
    "stop": stop,
    "queue": queue,
    "enqueue": enqueue_here,
    "leave": leave,
    "unload": unload,
    "expire": expire,
    "pause": pause,
    "unpause": unpause,
    "wake": wake,
    "report": report,
    "logs": logs,
    "runs": runs,
    "clean": clean,
    "forget": forget,
    "hashes": hashes,
    "pack": pack,
    "more": more,
    "part": part,
}


def main(verbs: Mapping[str, Callable[..., Any]]) -> None:
    arguments = json.loads(sys.argv[2])
    home = Path(arguments.pop("home")).expanduser()
    answer = verbs[sys.argv[1]](home, **arguments)
    if answer is not None:
        print(json.dumps(answer))


if __name__ == "__main__":
    main(VERBS)
