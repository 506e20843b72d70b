"""`./motley demo`: from a machine that knows nothing of Motley to a trained model, on three simulated hosts of unequal
speed.

Everything it does is what a person would type; each stage's own words are kept in a log. In the middle of the training
one worker is lost and comes back. It fails loudly when anything was not proven, and leaves nothing running whatever
happens. Without root the three machines are folders (lab/demo_sites.py), and it says what that leaves out.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from console import processes
from console.text_layout import redraw
from lab import demo_courses, demo_summary, needs
from lab import lab as labs
from lab.demo_courses import FAST, STATE, Course
from lab.demo_sites import LOST, ROOT, RUN, Folders, Simulated, Site
from lab.shell import LabError
from train.runlog import paths
from train.runlog.tail import read

MARK = {"MOTLEY_DEMO": str(STATE)}
"""In the environment of all that it starts, so that all of it can be ended."""
RESULTS = ROOT / "results"


NO_ROOM_BYTES = 10e6
STEP_S = 1.5
"""The length of a step where no quota limits the processor: the lost worker must be back before the end."""


def main(*, recipe: str, fast: bool, folders: bool, suite: str) -> int:
    course = demo_courses.choose(recipe, fast=fast)
    began = time.monotonic()

    def play() -> int:
        enough_disk(course)
        site = choose(fast=fast, folders=folders, suite=suite)
        return show(site, course, began)

    return played(play, "./motley demo")


STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """The demo was stopped by Ctrl-C, a kill, or a terminal that was closed."""

    def __init__(self, number: int) -> None:
        self.code = 128 + number


def played(play: Callable[[], int], typed: str) -> int:
    """The exit status of a demo that is played with no other beside it, to its end or until it is stopped."""
    for number in STOPS:
        signal.signal(number, stop_once)
    try:
        with alone():
            return play()
    except Stopped as stopped:
        with contextlib.suppress(OSError):  # the terminal is gone
            print(f"\nstopped: nothing of it is left running. Again: {typed}", file=sys.stderr)
        return stopped.code
    finally:
        hand_over(ROOT)


def stop_once(number: int, _: object) -> None:
    """A second one would break the cleaning up off, and they come in twos: to the whole group, and through make."""
    ignore_stops()
    raise Stopped(number)


def ignore_stops() -> None:
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)


def leave_nothing(down: Callable[[], object]) -> None:
    """Ends all that it has started and takes its machines away, however it ended; nothing breaks that off."""
    ignore_stops()
    end_offspring()
    down()


def hand_over(folder: Path) -> None:
    """What root has made here is its owner's: what comes after `sudo ./motley demo` needs no sudo."""
    owner = folder.stat()
    if os.geteuid() or not owner.st_uid:
        return
    for parent, folders, files in os.walk(folder):
        for path in [Path(parent, name) for name in (*folders, *files)]:
            with contextlib.suppress(FileNotFoundError):
                if path.lstat().st_uid == 0:
                    os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def choose(*, fast: bool, folders: bool, suite: str) -> Site:
    why = "as you asked" if folders else ""
    if not folders:
        missing = needs.what_is_missing()
        if missing and os.geteuid() == 0 and needs.missing_packages():
            print(f"  programs   installing {' '.join(needs.missing_packages())} (apt)", flush=True)
            needs.install_packages()
            missing = needs.what_is_missing()
        if not missing:
            return Simulated(suite, ready_made=fast)
        why = "no root" if os.geteuid() else "; ".join(missing)
    return Folders(why)


WHAT_IT_DOES = (
    "It types for you what you would type for three machines of your own: bootstrap makes them ready, launch trains",
    "one model on all of them. Meanwhile the demo takes one machine away and brings it back. No setting here changes.",
)


def show(site: Site, course: Course, began: float) -> int:
    shutil.rmtree(STATE, ignore_errors=True)
    shutil.rmtree(RESULTS / RUN, ignore_errors=True)
    STATE.mkdir(parents=True)
    if course.dataset == demo_courses.MANUAL:
        demo_courses.write_manual()
    print(f"motley demo · {site.title}", flush=True)
    for line in (*WHAT_IT_DOES, *site.left_out):
        print(f"  {line}", flush=True)
    try:
        end_offspring()  # of an earlier demo that was killed
        site.clear()
        with stage("tools", "downloading programs and model: the first time takes some minutes") as done:
            site.fetch_tools(course.model)
            done.append("programs and model are downloaded")
        with stage("machines", site.machines) as done:
            done.append(site.up())
        with stage("bootstrap", site.bootstrap) as done:
            done.append(bootstrap(site))
        print(f"  training   {course.about}\n             the plan and the steps, as launch prints them:", flush=True)
        train(site, course)
        if course.questions:
            with stage("answers", "to questions that were kept out of the training") as done:
                ask(site, course, done)
        with stage("report", "results fetched from all three and put on one page"):
            quietly(site, "fetch", site.console("fetch", "--run", RUN))
            words = ["report", "--run", RUN, "--results", str(RESULTS)]
            quietly(site, "report", [sys.executable, "-m", "console", *words])
        demo_summary.tell_all(RESULTS / RUN, course, site, time.monotonic() - began)
    finally:
        leave_nothing(site.down)
    return 0


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Two at once would take each other's machines away."""
    file = STATE.with_suffix(".lock")
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(
                "a demo is running already from this folder: wait for its end, or stop it there (Ctrl-C)"
            ) from None
        yield


def enough_disk(course: Course) -> None:
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < course.disk_gb:
        less = "" if course is FAST else ", or try the small one: ./motley demo --fast"
        raise LabError(
            f"the disk of {ROOT} has {free:.1f} GB free, the demo may need {course.disk_gb:.0f}\nfix: make room{less}",
            code=2,
        )


class Stage(list[str]):
    """The line of a stage: what it is doing, on a terminal; the result (what is appended) and its seconds after."""

    def __init__(self, name: str, doing: str) -> None:
        super().__init__()
        self.name, self.doing, self.since = name, doing, time.monotonic()
        self.begin()

    def begin(self) -> None:
        if sys.stdout.isatty():
            print(f"  {self.name:<10} {self.doing} …", end="", flush=True)

    def show(self, line: str) -> None:
        """Above it."""
        in_its_place(f"  {'':<10} {line}")
        self.begin()

    def end(self) -> None:
        words = " · ".join(self) or self.doing
        in_its_place(f"  {self.name:<10} {words}   {labs.elapsed(self.since)}")


def in_its_place(line: str) -> None:
    """Where a line stands on a terminal that is not ended yet."""
    if sys.stdout.isatty():
        redraw("")
    print(line, flush=True)


@contextlib.contextmanager
def stage(name: str, doing: str) -> Iterator[Stage]:
    stage = Stage(name, doing)
    try:
        yield stage
    except BaseException:
        if sys.stdout.isatty():
            print()
        raise
    stage.end()


def run_apart(command: list[str], *, environment: dict[str, str], **how: Any) -> int:
    """A process group of its own: Ctrl-C is answered here, and takes all of it along."""
    marked = environment | MARK
    with subprocess.Popen(command, cwd=ROOT, process_group=0, stdin=subprocess.DEVNULL, env=marked, **how) as process:
        try:
            return process.wait()
        except BaseException:
            end_offspring()
            raise


def end_offspring() -> None:
    (mark,) = (f"{name}={value}" for name, value in MARK.items())
    if left := processes.end(mark, signals=[signal.SIGKILL], patience_s=10):
        raise LabError(f"processes {left[:5]} of the demo do not end: what do they wait for? ps -o pid,stat,wchan")


def quietly(site: Site, name: str, command: list[str]) -> str:
    """Run with its words in a log; a failure shows the last of them."""
    log = STATE / f"{name}.log"
    with log.open("w") as file:
        failed = run_apart(command, stdout=file, stderr=subprocess.STDOUT, environment=site.environment)
    output = log.read_text()
    if failed:
        full = "the disk is full: make room, and again" if shutil.disk_usage(ROOT).free < NO_ROOM_BYTES else "nothing"
        last = "\n  ".join(output.strip().splitlines()[-12:] or [full])
        raise LabError(f"{name} failed; its last words:\n  {last}\n  all of them: {log.relative_to(ROOT)}")
    return output


def bootstrap(site: Site) -> str:
    output = quietly(site, "bootstrap", site.console("bootstrap"))
    lines = output.splitlines()
    proof = next((line.split("all-reduce", 1)[1] for line in lines if "all-reduce" in line), "")
    nodes = next((line for line in reversed(lines) if line.startswith("✓ bootstrap")), "")
    demo_summary.require(bool(proof and nodes), "bootstrap reported no exchange between the machines")
    seconds = proof.split(" = ")[0].split("MB")[1].strip()
    return f"{' · '.join(nodes.split(' · ')[1:3])} · tested: they combined 16 MB over the network in {seconds}"


def train(site: Site, course: Course) -> None:
    """Launch and follow in its own words, while one worker goes and comes."""
    wanted = {"recipe": course.recipe, "dataset": course.dataset, "run": RUN, **course.settings}
    if course.model:
        wanted["model"] = course.model
    if not site.unequal:  # one processor for all: nothing to balance, and no slow one that would get no row of a few
        wanted["balance"] = "even"
        if course.row_costs:
            by_speed = int(tiny_rows_per_s(site) * STEP_S / course.row_costs)
            wanted["rows_per_step"] = max(wanted["rows_per_step"], by_speed)
    words = [word for name, value in wanted.items() for word in ("-e", f"{name}={value}")]
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        accident = pool.submit(lose_a_worker, site, course, over)
        try:
            failed = run_apart(site.console("launch", *words), environment=site.environment)
        finally:
            over.set()
    accident.result()
    if failed:
        raise LabError("the run did not come to its end; see above")


def tiny_rows_per_s(site: Site) -> float:
    output = train_on_head(site, "calibrate", "--model", "tiny", "--max-seq-length", "64", "--json")
    return float(json.loads(output)["speed"]["rows_per_s"])


def lose_a_worker(site: Site, course: Course, over: threading.Event) -> None:
    """Gone at one step, back some steps after the others continued; unequal whenever they compute."""
    uneven = lost = back = False
    while not over.wait(0.1):
        steps, computing = progress(site)
        if not lost and max(steps, default=0) >= course.cut_at:
            say(f"the demo now {site.losing} {LOST}")
            site.lose()
            lost = True
            without_it = max(progress(site)[0])
        elif lost and not back and max(steps) >= without_it + course.back_after_steps:
            say(f"the demo now starts {LOST} again")
            site.bring_back()
            back, uneven = True, False
        if computing != uneven:
            site.uneven(on=computing)
            uneven = computing
    site.uneven(on=False)


def say(line: str) -> None:
    """In the middle of what launch prints, whose own line stays in place."""
    in_its_place(f"⚡ {line}")


def progress(site: Site) -> tuple[list[int], bool]:
    """The head's steps so far, and whether it computes: nobody's machine is so slow at loading programs."""
    folder = paths.logs(site.home("gpu-master"), RUN)
    events, plans = read(folder / paths.EVENTS), read(folder / paths.MEMBERS)
    started = max((event["time"] for event in events if event["event"] == "start"), default=0.0)
    planned = max((event["time"] for event in plans if event["event"] in ("plan", "lost")), default=0.0)
    return [event["step"] for event in events if event["event"] == "step"], started > planned


def ask(site: Site, course: Course, stage: Stage) -> None:
    """Each answer is shown as it comes."""

    def show(line: str) -> None:
        if asked := json.loads(line).get("answer"):
            for words in demo_summary.answer_lines(asked):
                stage.show(words)

    words = ["--rows", str(course.settings["eval_rows"]), "--questions", str(course.questions), "--answer-tokens", "24"]
    answers = json.loads(
        train_on_head(site, "eval", "--json", "--as-they-come", "--run", RUN, "--home", ".", *words, on_line=show)
    )
    (RESULTS / RUN).mkdir(parents=True, exist_ok=True)
    (RESULTS / RUN / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")


def train_on_head(site: Site, *words: str, on_line: Callable[[str], None] = lambda _: None) -> str:
    """`python -m train …` on the head, its output line by line as it comes; returns the last."""
    log, last = STATE / f"{words[0]}.log", ""
    with log.open("w") as file, subprocess.Popen(
        site.on_head(*words), cwd=ROOT, process_group=0, text=True, env=site.environment | MARK,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file,
    ) as process:  # fmt: skip
        assert process.stdout
        try:
            for last in process.stdout:
                on_line(last)
            failed = process.wait()
        except BaseException:
            end_offspring()
            raise
    if failed:
        reason = "\n  ".join([last.strip(), *log.read_text().strip().splitlines()[-3:]]).strip()
        raise LabError(f"train {words[0]} failed on the head:\n  {reason}")
    return last
