"""A model that lab hosts hold together: what its steps take beside what the plan says, and beside the same model with
its base streamed, at three link speeds.

    make bench PARTS=pipes
    python -m tests.bench.pipes trio-1000 pair-1000 --repeats 1

Each host's part is calibrated under its share of the processor, all hosts at the same time, as `train calibrate` does
on the nodes of a launch; the run cuts by these speeds.
"""

from __future__ import annotations

import functools
import json
import shutil
import statistics
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count as counting
from typing import Any

from lab.host import Host
from lab.lab import Lab
from lab.layer import ENV
from tests.bench.page import Figures, Found, bench, spread
from tests.support import torchrun
from tests.support.tables import table as table_of
from tests.support.torchrun import AT, environment, on_disk
from train.plan.estimate import pipeline_prediction
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import Facts
from train.plan.placement.first_way_that_fits import choose
from train.plan.placement.fit import Fit, cut_by_speed
from train.plan.settings.read_settings import RunConfig, load_config
from train.plan.speed.step_time import Machine, Traffic, together

LAYERS, ROWS, ROW_LENGTH, MICRO_BATCH = 12, 24, 256, 1
SETTLE, COUNT = 3, 6
MODEL = AT / "twelve"
MAKE = f"""
import shutil, torch
from pathlib import Path
from transformers import AutoConfig, AutoModelForCausalLM
from train.models.model_files import model_folder
tiny, out = Path(model_folder("tiny")), Path("{MODEL}")
config = AutoConfig.from_pretrained(tiny)
config.num_hidden_layers = {LAYERS}
torch.manual_seed(5)
AutoModelForCausalLM.from_config(config).save_pretrained(out)
for file in tiny.glob("*token*"):
    shutil.copy(file, out)
"""
ASKED: dict[str, Any] = {"model": str(MODEL), "rows_per_step": ROWS, "micro_batch": MICRO_BATCH, "wire": "fp32"}
NAME = "pipes"
COUNTER = counting()
GIB = 1 << 30


@dataclass(frozen=True)
class Case:
    percents: tuple[int, ...]
    """Of a core, a host each."""
    mbit: int
    whole: bool = False
    """The first host holds the whole model, beside a pipe of the others."""


CASES = {
    "trio-1000": Case((60, 30, 15), 1000),
    "trio-100": Case((60, 30, 15), 100),
    "trio-20": Case((60, 30, 15), 20),
    "pair-1000": Case((60, 30), 1000),
    "even-100": Case((35, 35, 35), 100),
    "hybrid-1000": Case((60, 30, 15), 1000, whole=True),
}
STREAMED = ("trio-1000", "trio-100", "trio-20")


@contextmanager
def hosts() -> Iterator[Lab]:
    with torchrun.lab_for_training("benchpipes") as lab:
        first, *others = lab.hosts
        first.run(*environment(first), f"{ENV}/bin/python", "-c", MAKE)
        for host in others:
            shutil.copytree(on_disk(first) / MODEL.name, on_disk(host) / MODEL.name)
        yield lab


class Place:
    """Some hosts under their shares, with their links."""

    def __init__(self, lab: Lab, case: Case) -> None:
        self.hosts = lab.hosts[: len(case.percents)]
        self.names = [host.name for host in self.hosts]
        self.percent = dict(zip(self.names, case.percents, strict=True))
        self.mbit = case.mbit
        torchrun.links(self.hosts, case.mbit)
        config = json.loads((on_disk(self.hosts[0]) / MODEL.name / "config.json").read_text())
        facts = load_config({"model": "tiny"}).facts_of(config, str(MODEL))
        assert isinstance(facts, Facts)
        self.facts = facts

    def calibrated(self, words: dict[str, list[str]]) -> dict[str, dict[str, float]]:
        """Rows, or layers of a row, per second and seconds beside them, of all hosts at the same time."""

        def measure(host: Host) -> dict[str, float]:
            own = ["-m", "train", "calibrate", f"--model={MODEL}", f"--max-seq-length={ROW_LENGTH}", "--json"]
            own += [f"--micro-batch={MICRO_BATCH}", *words[host.name]]
            home = f"MOTLEY_HOME={AT}/calibrated-{next(COUNTER)}"
            said = host.run(*environment(host), home, f"{ENV}/bin/python", *own, timeout_s=300)
            return dict(json.loads(said.strip().splitlines()[-1])["speed"])

        self.shared(on=True)
        try:
            with ThreadPoolExecutor(len(self.hosts)) as pool:
                return dict(zip(self.names, pool.map(measure, self.hosts), strict=True))
        finally:
            self.shared(on=False)

    def shared(self, *, on: bool) -> None:
        torchrun.quotas(self.hosts, on=on, percent=self.percent)

    def step_s(self, **settings: Any) -> tuple[float, int]:
        """The median step of a run, as if its rows were full as the plan's are, and how many weights it trains."""
        run = torchrun.train(f"c{next(COUNTER)}", self.hosts, max_steps=400, **ASKED | settings)
        try:
            first = run.wait_for_step(2)
            self.shared(on=True)
            run.wait_for_step(first + SETTLE + COUNT)
            steps = run.events("step")[first + SETTLE : first + SETTLE + COUNT]
            took = statistics.median(step["step_s"] * ROWS * ROW_LENGTH / step["tokens"] for step in steps)
            return took, int(run.events("start")[-1]["weights"])
        finally:
            self.shared(on=False)
            run.stop()


def one(lab: Lab, name: str) -> Figures:
    case = CASES[name]
    place = Place(lab, case)
    planned, config, found = cut(place, case)
    if name in STREAMED:
        found |= streamed(place, planned, config)
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in found.items()}


def cut(place: Place, case: Case) -> tuple[Fit, RunConfig, Figures]:
    first, *others = place.names
    pipes = f"{'+'.join(others)},{first}" if case.whole else "+".join(place.names)
    config = load_config({**ASKED, "pipes": pipes, "max_seq_length": ROW_LENGTH})
    devices = [Device(name, "cpu", 24 * GIB) for name in place.names]
    planned = choose(config, devices, place.facts, model="twelve", mbit=float(place.mbit))
    planned = cut_by_speed(planned, {name: float(share) for name, share in place.percent.items()})
    words = {name: [f"--pipes={pipes}"] for name in place.names}
    for name, (begin, end) in planned.cut.layers.items() if planned.cut else ():
        words[name].append(f"--part={begin}-{end}")
    calibrated = place.calibrated(words)
    speeds = {name: speed["rows_per_s"] for name, speed in calibrated.items()}
    planned = cut_by_speed(planned, speeds)
    assert planned.cut
    fixed = {name: speed["fixed_s"] for name, speed in calibrated.items()}
    said = pipeline_prediction.predict(planned, config, speeds, fixed).together
    took, _ = place.step_s(pipes=pipes, speeds=",".join(f"{name}={speed:.5g}" for name, speed in speeds.items()))
    layers = {name: end - begin for name, (begin, end) in planned.cut.layers.items()}
    return planned, config, {"layers": layers, "shares": said.shares, "predicted": said.step_s, "took": took}


def streamed(place: Place, planned: Fit, config: RunConfig) -> Figures:
    """And which of both a plan would choose that knows how fast the machines stream."""
    calibrated = place.calibrated({name: ["--weights=stream"] for name in place.names})
    speeds = ",".join(f"{name}={speed['rows_per_s']:.5g}" for name, speed in calibrated.items())
    took, weights = place.step_s(weights="stream", sync="flat", speeds=speeds)
    machines = [
        Machine(name, speed["rows_per_s"], float(place.mbit), speed["fixed_s"]) for name, speed in calibrated.items()
    ]
    said = together(machines, ROWS, Traffic(weights).bytes).step_s
    rates = {name: speed["rows_per_s"] for name, speed in calibrated.items()}
    chosen = "cut" if pipeline_prediction.faster_than_streamed(planned, config, rates, said) else "streamed"
    return {"streamed predicted": said, "streamed took": took, "chosen": chosen}


PARTS = {name: functools.partial(one, name=name) for name in CASES}


def table(found: Found) -> list[str]:
    rows = []
    for name, case in CASES.items():
        runs = found[name]
        off = max((run["predicted"] / run["took"] - 1 for run in runs), key=abs)
        cells = [
            f"{' + '.join(map(str, case.percents))} % of a core, {case.mbit} Mbit/s",
            " + ".join(map(str, runs[-1]["layers"].values())) + ", the first whole" * case.whole,
            spread([run["took"] for run in runs], "{:.2f}"),
            " ".join(f"{run['predicted']:.2f}" for run in runs),
            f"{off:+.0%}",
        ]
        rows.append([*cells, *(of_streamed(runs) if name in STREAMED else [""] * 4)])
    cut = ("machines, link", "layers", "s a step, cut", "… predicted", "off (aim 15 %)")
    return table_of((*cut, "streamed", "… predicted", "tokens/s, cut : streamed", "the plan takes"), rows)


def of_streamed(runs: list[Figures]) -> list[str]:
    return [
        spread([run["streamed took"] for run in runs], "{:.2f}"),
        " ".join(f"{run['streamed predicted']:.2f}" for run in runs),
        ", ".join(f"{rate(run['took'])} : {rate(run['streamed took'])}" for run in runs),
        ", ".join(dict.fromkeys(run["chosen"] for run in runs)),
    ]


def rate(step_s: float) -> str:
    return f"{ROWS * ROW_LENGTH / step_s:.0f}"


if __name__ == "__main__":
    sys.exit(bench(__doc__, NAME, hosts(), PARTS, table))
