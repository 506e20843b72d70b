"""A base that is too large for the card: streamed to it, and cut over processes that share the card and hold a part
each. Both train what one process trains that holds it whole."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.gpu import runs
from tests.gpu.line import Figures, Line, Place
from tests.gpu.runs import curve

TRAINS = ("transformers and peft",)


def measure_streamed(place: Place, load_in: str, change: Callable[[int], None] | None = None) -> Figures:
    """Beside the same one held, which computes forward twice as well: the adapters are one, bit for bit."""
    own = {"load_in": load_in, "gradient_checkpointing": "true"}
    truth = runs.begin_truth(place, **own)
    options = runs.options_for(place, **own, weights="stream")
    found = runs.train(place.folder / "streamed", options, [place.device], change=change)
    held = runs.well(truth)
    return {"losses": found.losses(), "adapters": [*found.adapters(), *held.adapters()], "truth": held.losses()}


def half_stays(_rank: int) -> None:
    """As where a card has room for half of the layers."""
    from train.engine import after_loading, before_loading, setup
    from train.models.stream import Stream

    own: Any = {"settle": before_loading.settle, "hold": Stream.hold}

    def settling(*words: Any) -> Any:
        return replace(own["settle"](*words), may_hold=True)

    def half(self: Stream, _room: int) -> int:
        found: int = own["hold"](self, max(layer.bytes for layer in self.layers) * len(self.layers) // 2)
        return found

    vars(setup).update(settle=settling)
    vars(after_loading).update(trial_of=lambda *_: (lambda _rows: 0, 0))
    Stream.hold = half  # type: ignore[method-assign, assignment]


def measure_cut(place: Place, pipes: str, processes: int) -> Figures:
    own: dict[str, Any] = {"micro_batch": 2}
    truth = runs.begin_truth(place, **own)
    options = runs.options_for(place, **own, pipes=pipes)
    found = runs.train(place.folder / "cut", options, [place.device] * processes, change=runs.over_gloo)
    return {"losses": found.losses(), "adapters": found.adapters(), "truth": runs.well(truth).losses()}


def streamed(load_in: str, *needs: str, part: bool = False) -> Line:
    return Line(
        name=f"stream-{'part-' if part else ''}{load_in}",
        about=f"a base in {load_in}, {'half' if part else 'all'} streamed: trains as one that is held, bit for bit",
        needs=(*TRAINS, *needs),
        measure=functools.partial(measure_streamed, load_in=load_in, change=half_stays if part else None),
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
    streamed("4bit", "bitsandbytes", part=True),
    cut("two", "two stages", "node-0+node-1", 2),
    cut("beside-whole", "two stages beside one that holds it whole", "node-0+node-1,node-2", 3),
)
