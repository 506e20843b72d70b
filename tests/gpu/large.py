"""A base that is too large for the card: streamed to it, and cut over processes that share the card and hold a part
each. Both train what one process trains that holds it whole."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.gpu import runs
from tests.gpu.line import TRAINS, Figures, Line, Place
from tests.gpu.runs import curve


def measure_streamed(place: Place, load_in: str, change: Callable[[int], None] | None = None) -> Figures:
    """Beside the same one held, which computes forward twice as well: the adapters are one, bit for bit."""
    own = {"load_in": load_in, "gradient_checkpointing": "true"}
    truth = runs.begin_truth(place, **own)
    options = runs.options_for(place, **own, weights="stream")
    found = runs.train(place.folder / "streamed", options, [place.device], change=change)
    figures = runs.compared(found, truth)
    return figures | {"adapters": [*found.adapters(), *truth.adapters()]}


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
    own = {"micro_batch": 2, "pipes": pipes}
    return runs.beside_truth(place, [place.device] * processes, own, change=runs.over_gloo)


def streamed(load_in: str, *needs: str, part: bool = False) -> Line:
    return Line(
        f"stream-{'part-' if part else ''}{load_in}",
        f"a base in {load_in}, {'half' if part else 'all'} streamed: trains as one that is held, bit for bit",
        functools.partial(measure_streamed, load_in=load_in, change=half_stays if part else None),
        functools.partial(curve, limit=1e-6),
        needs=(*TRAINS, *needs),
    )


def cut(name: str, about: str, pipes: str, processes: int) -> Line:
    measured = functools.partial(measure_cut, pipes=pipes, processes=processes)
    return Line(f"pipe-{name}", f"a model cut over processes on the card, gloo: {about}", measured, curve)


LINES = (
    streamed("16bit"),
    streamed("4bit", "bitsandbytes"),
    streamed("4bit", "bitsandbytes", part=True),
    cut("two", "two stages", "node-0+node-1", 2),
    cut("beside-whole", "two stages beside one that holds it whole", "node-0+node-1,node-2", 3),
)
