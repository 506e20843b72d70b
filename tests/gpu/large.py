"""A base that is too large for the card: streamed to it, and cut over processes that share the card and hold a part
each. Both train what one process trains that holds it whole."""

from __future__ import annotations

import functools
from typing import Any

from tests.gpu import runs
from tests.gpu.line import Figures, Line, Place
from tests.gpu.runs import curve

TRAINS = ("transformers and peft",)


def measure_streamed(place: Place, load_in: str) -> Figures:
    """Beside the same one held, which computes forward twice as well: the adapters are one, bit for bit."""
    own = {"load_in": load_in, "gradient_checkpointing": "true"}
    truth = runs.begin_truth(place, **own)
    found = runs.train(place.folder / "streamed", runs.options_for(place, **own, weights="stream"), [place.device])
    held = runs.well(truth)
    return {"losses": found.losses(), "adapters": [*found.adapters(), *held.adapters()], "truth": held.losses()}


def measure_cut(place: Place, pipes: str, processes: int) -> Figures:
    own: dict[str, Any] = {"micro_batch": 2}
    truth = runs.begin_truth(place, **own)
    options = runs.options_for(place, **own, pipes=pipes)
    found = runs.train(place.folder / "cut", options, [place.device] * processes, change=runs.over_gloo)
    return {"losses": found.losses(), "adapters": found.adapters(), "truth": runs.well(truth).losses()}


def streamed(load_in: str, *needs: str) -> Line:
    return Line(
        name=f"stream-{load_in}",
        about=f"a base in {load_in}, streamed: the adapter of one that is held, bit for bit",
        needs=(*TRAINS, *needs),
        measure=functools.partial(measure_streamed, load_in=load_in),
        judge=functools.partial(curve, limit=1e-6),
    )


def cut(name: str, about: str, pipes: str, processes: int) -> Line:
    return Line(
        name=f"pipe-{name}",
        about=f"a model cut over processes on the card, gloo: {about}",
        needs=TRAINS,
        measure=functools.partial(measure_cut, pipes=pipes, processes=processes),
        judge=curve,
    )


LINES = (
    streamed("16bit"),
    streamed("4bit", "bitsandbytes"),
    cut("two", "two stages", "node-0+node-1", 2),
    cut("beside-whole", "two stages beside one that holds it whole", "node-0+node-1,node-2", 3),
)
