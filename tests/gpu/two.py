"""Two processes on the card over gloo: each way of combining gradients, each wire, a share of 0, a run that goes from
two to one and back; a CPU beside the card; two cards over NCCL."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from tests.gpu import runs
from tests.gpu.line import TRAINS, Figures, Line, Place, Verdict, together, told
from tests.gpu.runs import curve

STOPS = (3, 7)


def measure(place: Place, own: runs.Options) -> Figures:
    """As on two nodes with a card each."""
    return runs.beside_truth(place, [place.device] * 2, own, change=runs.over_gloo)


def measure_beside_cpu(place: Place) -> Figures:
    return runs.beside_truth(place, [place.device, "cpu"], {"shares": "3,1"})


def measure_two_cards(place: Place) -> Figures:
    return runs.beside_truth(place, [place.device] * 2, {"sync": "ddp"}, one_card_each=True, change=own_home)


def own_home(rank: int) -> None:
    """Each process writes, although it is not the first of its machine."""
    from train.parallel.process_group import World

    World.writes = property(lambda self: True)  # type: ignore[assignment]


def stop_at(step: int) -> Callable[[int], None]:
    """Nothing broken: a stop as by `./motley stop`, at the same step on all ranks."""

    def change(rank: int) -> None:
        from train.engine import loop

        runs.over_gloo(rank)
        decide = loop.decide

        def stopping(run: Any, event: dict[str, Any]) -> None:
            if run.step == step:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(60)
            decide(run, event)

        loop.decide = stopping

    return change


def measure_resume(place: Place) -> Figures:
    truth = runs.begin_truth(place)
    options, home = runs.options_for(place), place.folder / "two"
    codes = []
    for size, step in zip((2, 1), STOPS, strict=True):
        codes.append(runs.Runs(home, options, [place.device] * size, change=stop_at(step)).wait())
    last = runs.train(home, options, [place.device] * 2, change=runs.over_gloo)
    starts = [event["step"] for event in last.events(0, "start")]
    adapters = [{key: value for key, value in one.items() if int(key) > STOPS[1]} for one in last.adapters()]
    return {**runs.compared(last, truth), "adapters": adapters, "codes": codes, "starts": starts}


def judge_resume(values: Figures) -> Verdict:
    right = values["starts"] == [0, *STOPS]
    left = all(code == 128 + signal.SIGTERM for part in values["codes"] for code in part)
    return together(
        curve(values),
        (right, f"began at steps {values['starts']}"),
        told(left, "both stops left with 143", f"the stops ended with {values['codes']}"),
    )


def one(name: str, about: str, limit: float = 1e-4, **own: Any) -> Line:
    return Line(
        f"two-{name}",
        f"two processes, gloo: {about}",
        functools.partial(measure, own=own),
        functools.partial(curve, limit=limit),
    )


LINES = (
    one("ddp", "ddp, shares 5:3", sync="ddp", shares="5,3"),
    one("flat", "flat, shares 5:3", sync="flat", shares="5,3"),
    one("share-0", "one without rows", sync="ddp", shares="1,0"),
    one("wire-bf16", "gradients travel in bf16", 1e-3, sync="ddp", wire="bf16"),
    Line("two-resume", "from two processes to one and back", measure_resume, judge_resume),
    Line(
        "card-and-cpu",
        "a card and a CPU train one adapter, bit for bit",
        measure_beside_cpu,
        curve,
        needs=(*TRAINS, "a card"),
        simulated=True,
    ),
    Line(
        "two-cards",
        "two cards of one machine over NCCL",
        measure_two_cards,
        curve,
        needs=(*TRAINS, "two cards"),
        simulated=True,
    ),
)
