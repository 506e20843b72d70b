"""One Triton kernel: its launcher is built by the machine's C compiler against Python's headers, as unsloth's are."""

from __future__ import annotations

import importlib
import time

from tests.gpu.line import Figures, Line, Place, Verdict, together


def measure(place: Place) -> Figures:
    """Built now, run on the card; a wrong sum is an error."""
    kernel = importlib.import_module("train.measure.gpu_kernel")
    began = time.perf_counter()
    with kernel.nothing_built():
        kernel.prove(place.device)
    return {"compile_s": round(time.perf_counter() - began, 2)}


def judge(values: Figures) -> Verdict:
    return together((values["compile_s"] < 30, f"built, and right, in {values['compile_s']} s"))


LINES = (
    Line(
        "triton",
        "a Triton kernel compiles and runs",
        measure,
        judge,
        needs=("a card", "torch", "triton", "a C compiler"),
        simulated=True,
    ),
)
