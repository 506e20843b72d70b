"""Two machines, driven from the controller by the product's own verbs: launch, status, stop, fetch, logs. Judged is
what the nodes wrote (pair_logs.py).

A cable is pulled and a machine put to sleep by itself where `sudo -n` works there, for a time that ends by itself;
elsewhere a person is asked to, on the terminal.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.gpu.line import Figures, Line, Place, Verdict
from tests.gpu.machine import ROOT
from tests.gpu.pair_logs import (
    Logs,
    cut,
    judge_adapters,
    judge_cuda_after_suspend,
    judge_hour,
    judge_loss,
    judge_nccl,
)
from train.models.device import ALIKE
from train.runlog.tail import read

NEEDS = ("PAIR=NODE,NODE", "the controller's environment (make env)")
SMALL, LARGE = "smollm2-135m", "llama2-7b"
SAVE_EVERY, TRAINED, AWAY_S = 20, 12, 45
HOUR_MINUTES, ALONE_MINUTES = 60, 10
LIMITS_S = {"kill": 45, "cable": 60, "suspend": 60}
"""Until training again: a generation, its workers, the model."""
DOWN = (
    "to=$(getent ahostsv4 {other} | awk 'NR==1{{print $1}}')"
    " && dev=$(ip -o route get $to | sed -n 's/.* dev \\([^ ]*\\).*/\\1/p')"
    " && sudo -n systemd-run --collect --on-active={away} ip link set $dev up"
    " && sudo -n systemd-run --collect --on-active=1 ip link set $dev down"
)
SLEEP = "sudo -n systemd-run --collect --on-active=1 rtcwake -m mem -s {away}"
KILL = "kill -9 $(pgrep -x motley-worker) && date +%s.%N"
BY_HAND = {
    "cable": "pull the network cable of {victim} now, and put it back after {away} s",
    "suspend": "put {victim} to sleep now (systemctl suspend), and wake it after {away} s",
}


class Pair:
    """The first of the two stays; the second is the one to which things happen."""

    def __init__(self, place: Place) -> None:
        self.inventory, self.model = place.inventory, place.model
        self.other, self.victim = place.pair
        self.results = place.folder
        self.prefix = [".venv/bin/python", "-m", "lab", "exec", "--"] if Path(place.inventory).name == "lab" else []

    def says(self, program: list[str], *, timeout_s: float = 900, check: bool = True) -> str:
        words = [*self.prefix, *program]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout_s)
        if check and done.returncode:
            said = f"{done.stdout[-500:]}{done.stderr[-500:]}"
            raise RuntimeError(f"{' '.join(program)[:200]} ended with {done.returncode}: {said}")
        return done.stdout

    def console(self, verb: str, *words: str, **how: Any) -> str:
        return self.says([".venv/bin/python", "-m", "console", verb, "--inventory", self.inventory, *words], **how)

    def on(self, node: str, shell: str, *, check: bool = True) -> str:
        words = ["-i", self.inventory, node, "-m", "ansible.builtin.shell", "-a", shell]
        return self.says([".venv/bin/ansible", *words], timeout_s=120, check=check)

    def launch(
        self, run: str, nodes: tuple[str, ...], environment: dict[str, str] | None = None, **settings: Any
    ) -> None:
        wanted = {"run": run, "nodes": ",".join(nodes), "follow": "false", "resume": "never", "dataset": "stdlib-qa"}
        given = [f"{name}={value}" for name, value in {**wanted, "model": self.model or SMALL, **settings}.items()]
        words = [word for one in given for word in ("-e", one)]
        if environment:
            words += ["-e", json.dumps({"motley_render_environment": environment})]
        self.says([".venv/bin/ansible-playbook", "-i", self.inventory, "launch.yml", *words])

    def looks(self) -> dict[str, Any]:
        """The state of the run on each node that answers."""
        said = self.console("status", "--json", check=False, timeout_s=60)
        return dict(json.loads(said)["nodes"]) if said.startswith("{") else {}

    def wait(self, what: str, condition: Callable[[dict[str, Any]], bool], within_s: float) -> None:
        end = time.monotonic() + within_s
        while not condition(self.looks()):
            if time.monotonic() > end:
                raise RuntimeError(f"not within {within_s:.0f} s: {what}")
            time.sleep(1)

    def logs(self, run: str) -> Logs:
        self.console("fetch", "--run", run, "--results", str(self.results))
        found: Logs = {}
        for node in (self.other, self.victim):
            folder = self.results / run / "nodes" / node
            files = {name: folder / f"{name}.jsonl" for name in ("events", "members")}
            found[node] = {name: read(file) if file.exists() else [] for name, file in files.items()}
            found[node]["events"] = cut(found[node]["events"])
        return found

    def stop(self) -> None:
        self.console("stop", check=False)


def step_of(looks: dict[str, Any], node: str) -> dict[str, Any]:
    return dict((looks.get(node) or {}).get("step") or {"step": 0, "time": 0.0, "nodes": {}})


def trained_together(looks: dict[str, Any], node: str, steps: int, since: float = 0.0) -> bool:
    step = step_of(looks, node)
    return step["step"] >= steps and step["time"] > since and len(step["nodes"]) == 2


@contextlib.contextmanager
def launched(place: Place, run: str, nodes: tuple[str, ...], **how: Any) -> Iterator[Pair]:
    """Stopped at its end, whatever happens."""
    pair = Pair(place)
    try:
        pair.launch(run, nodes, **how)
        yield pair
    finally:
        pair.stop()


def trained(place: Place, run: str, minutes: float, nodes: tuple[str, ...], **settings: Any) -> Logs:
    """A run that is stopped after so long."""
    with launched(place, run, nodes, max_steps=1_000_000, save_every=200, **settings) as pair:
        pair.wait("a first step", lambda looks: step_of(looks, nodes[0])["step"] > 0, 900)
        time.sleep(60 * minutes)
    return pair.logs(run)


def measure_adapters(place: Place) -> Figures:
    """Each on its card, as if they were known to step alike already."""
    alike = "+".join(capability(Pair(place), node) for node in place.pair)
    settings = {"max_steps": 200, "proof_every": 25, "eval_every": 0}
    with launched(place, "kit-adapters", place.pair, environment={ALIKE: alike}, **settings) as pair:
        pair.wait("step 200", lambda looks: step_of(looks, pair.other)["step"] >= 200, 3000)
        pair.wait("its end", lambda looks: not any(look["on"] for look in looks.values()), 300)
        return {"logs": pair.logs("kit-adapters"), "gpus": gpus(pair), "alike": alike}


def capability(pair: Pair, node: str) -> str:
    said = pair.on(node, "nvidia-smi --query-gpu=compute_cap --format=csv,noheader")
    told = re.search(r"^\d+\.\d+$", said, re.MULTILINE)
    if told is None:
        raise RuntimeError(f"nvidia-smi on {node} names no compute capability")
    return told[0]


def gpus(pair: Pair) -> dict[str, list[str]]:
    """Only a node without a run tells them."""
    return {name: [card["name"] for card in look.get("gpus") or []] for name, look in pair.looks().items()}


def measure_loss(place: Place, fault: str) -> Figures:
    run = f"kit-{fault}"
    with launched(place, run, place.pair, max_steps=1_000_000, save_every=SAVE_EVERY) as pair:
        pair.wait("steps of both", lambda looks: trained_together(looks, pair.other, TRAINED), 900)
        at = happens(pair, fault)
        lasts_s = 0 if fault == "kill" else AWAY_S
        time.sleep(lasts_s)

        def again(looks: dict[str, Any]) -> bool:
            return trained_together(looks, pair.other, TRAINED, at + lasts_s) and started_since(looks, pair, at)

        pair.wait(f"both again after {fault}", again, 300)
        time.sleep(5)
    facts = {"fault": fault, "at": at, "victim": pair.victim, "other": pair.other, "save_every": SAVE_EVERY}
    return {**facts, "limit_s": LIMITS_S[fault], "logs": pair.logs(run), "gpus": gpus(pair)}


def started_since(looks: dict[str, Any], pair: Pair, at: float) -> bool:
    return float((looks.get(pair.other) or {}).get("start", {}).get("time", 0)) > at


def happens(pair: Pair, fault: str) -> float:
    """When: by that machine's clock, which bootstrap has set; where a person does it, by this one's."""
    if fault == "kill":
        said = pair.on(pair.victim, KILL)
        return float(said.split()[-1])
    shell = {"cable": DOWN, "suspend": SLEEP}[fault].format(other=pair.other, away=AWAY_S)
    if "rc=0" in pair.on(pair.victim, shell, check=False):  # both begin a second later
        return time.time() + 1
    ask_a_person(BY_HAND[fault].format(victim=pair.victim, away=AWAY_S))
    return time.time()


def ask_a_person(text: str) -> None:
    with Path("/dev/tty").open("r+") as terminal:
        terminal.write(f"\n  {text}; then press Enter at once: ")
        terminal.flush()
        terminal.readline()


def measure_nccl(place: Place) -> Figures:
    how: dict[str, Any] = {"environment": {"NCCL_DEBUG": "INFO"}, "max_steps": 20, "exchange": "nccl"}
    with launched(place, "kit-nccl", place.pair, **how) as pair:
        pair.wait("step 20", lambda looks: step_of(looks, pair.other)["step"] >= 20, 900)
        kept = {}
        for node in place.pair:
            journal = pair.console("logs", "--limit", node, "--lines", "2000", "--no-follow")
            kept[node] = "\n".join(line for line in journal.splitlines() if "NCCL" in line)[:4000]
        return {"journals": kept, "logs": pair.logs("kit-nccl"), "gpus": gpus(pair)}


def measure_cuda_after_suspend(place: Place) -> Figures:
    """Without a run: a card that was asleep, and the selftest afterwards."""
    pair = Pair(place)
    at = happens(pair, "suspend")
    time.sleep(5)
    pair.wait("its answer", lambda looks: pair.victim in looks, 300)
    slept_s = time.time() - at
    said = pair.on(
        pair.victim, "cd ~/ai-cluster/scripts && ../env/bin/python -m train selftest --device cuda --json", check=False
    )
    answers = [line for line in said.splitlines() if line.startswith("{")]
    return {"slept_s": slept_s, "asked_s": AWAY_S, "selftest": json.loads(answers[-1]) if answers else {}}


def measure_hour(place: Place) -> Figures:
    own = {"model": place.model or LARGE, "load_in": "4bit"}
    together = trained(place, "kit-hour", HOUR_MINUTES + 1, place.pair, **own)
    alone = trained(place, "kit-alone", ALONE_MINUTES, place.pair[:1], **own)
    return {"minutes": HOUR_MINUTES, "logs": together, "alone": alone, "gpus": gpus(Pair(place))}


def line(
    name: str, about: str, measure: Callable[[Place], Figures], judge: Callable[[Figures], Verdict], minutes: float
) -> Line:
    return Line(f"pair-{name}", about, measure, judge, needs=NEEDS, simulated=True, limit_s=60 * minutes)


def loss(fault: str, about: str) -> Line:
    return line(fault, about, functools.partial(measure_loss, fault=fault), judge_loss, 30)


LINES = (
    line("adapters", "two machines: adapters bit for bit after 1, 25, 200 steps", measure_adapters, judge_adapters, 60),
    line("nccl", "NCCL through the firewall, on the named network card", measure_nccl, judge_nccl, 30),
    loss("kill", "kill -9 of a worker"),
    loss("cable", "a cable pulled for 45 s"),
    loss("suspend", "a machine asleep for 45 s"),
    line("cuda-after-suspend", "CUDA after a sleep", measure_cuda_after_suspend, judge_cuda_after_suspend, 15),
    line("hour", "an hour of a 7B in 4 bit, against one alone", measure_hour, judge_hour, 150),
)
