"""Out of memory in the forward pass, in the backward pass and in the optimizer: what the run makes of it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.gpu import runs
from tests.gpu.line import Figures, Line, Place, Verdict, furthest, together, within

STEP = 6
"""In which it happens; step 4 has been saved."""
IMPOSSIBLE_BYTES = 1 << 50


def ask_too_much(device: str) -> None:
    import torch

    if device == "cpu":  # a CPU's own error is another one, and comes too late
        raise torch.OutOfMemoryError("out of memory, made by this line")
    torch.empty(IMPOSSIBLE_BYTES, dtype=torch.uint8, device=device)


def once_in(part: str, device: str) -> Callable[[int], None]:
    def change(rank: int) -> None:
        import torch
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        from train.engine import loop
        from train.models.backends import LossModule

        left = [part]
        now: dict[str, Any] = {"step": 0}
        compute, forward = loop.compute, LossModule.forward

        def fail() -> None:
            if left and now["step"] == STEP:
                left.clear()
                ask_too_much(device)

        def watched(run: Any, mine: list[int], weight: float) -> Any:
            now["step"] = run.step + 1
            return compute(run, mine, weight)

        def failing(self: Any, batch: Any) -> torch.Tensor:
            if part == "forward":
                fail()
            loss = forward(self, batch)
            if part == "backward" and loss.requires_grad:
                loss.register_hook(lambda _: fail())
            return loss

        loop.compute = watched
        LossModule.forward = failing  # type: ignore[method-assign]
        if part == "optimizer":
            register_optimizer_step_pre_hook(lambda *_: fail())

    return change


def measure(place: Place, part: str) -> Figures:
    truth = runs.begin_truth(place)
    options, home, cause = runs.options_for(place), place.folder / "run", place.folder / "cause.json"
    first = runs.Runs(home, options, [place.device], change=once_in(part, place.device), failure=cause)
    codes = first.wait()
    last = runs.train(home, options, [place.device]) if any(codes) else first
    return {
        "part": part,
        "codes": codes,
        "warnings": [event["message"] for event in last.events(0, "warning")],
        "failed": [event["message"] for event in last.events(0, "failed")],
        "cause": json.loads(cause.read_text()) if Path(cause).exists() else None,
        "starts": [event["step"] for event in last.events(0, "start")],
        "micro_batches": [event["nodes"]["node-0"]["micro_batch"] for event in last.events(0, "step")],
        "losses": last.losses(),
        "truth": runs.well(truth).losses(),
    }


def judge(values: Figures) -> Verdict:
    curve = within("losses off the undisturbed run by", furthest(values["losses"], values["truth"]), 1e-4)
    if values["part"] == "optimizer":
        return together(curve, *died_and_resumed(values))
    sizes, half = values["micro_batches"], runs.OPTIONS["micro_batch"] // 2
    lowered = sizes == [2 * half] * (STEP - 1) + [half] * (len(sizes) - STEP + 1)
    told = any("out of memory" in warning for warning in values["warnings"])
    return together(
        curve,
        (values["codes"] == [0], "the run went to its end" if values["codes"] == [0] else "the run did not survive it"),
        (lowered, f"from step {STEP} on {half} rows at a time" if lowered else f"rows at a time were {sizes}"),
        (told, "and said so" if told else "without a warning"),
    )


def died_and_resumed(values: Figures) -> list[tuple[bool, str]]:
    """A step that may be half done is not saved: the last proven checkpoint counts."""
    cause = values["cause"] or {}
    named = any("memory" in message.lower() for message in values["failed"])
    own = cause.get("kind") == "own"
    return [
        (values["codes"] == [1], "the process ended" if values["codes"] == [1] else f"it ended with {values['codes']}"),
        (named, "the cause was named" if named else f"no cause was named: {values['failed']}"),
        (own, "as this node's own" if own else f"as {cause.get('kind', 'nothing')}"),
        (values["starts"] == [0, 4], f"began at steps {values['starts']}"),
    ]


LINES = tuple(
    Line(
        name=f"oom-{part}",
        about=f"out of memory in the {part}{'' if part == 'optimizer' else ' pass'}",
        needs=("transformers and peft",),
        measure=functools.partial(measure, part=part),
        judge=judge,
    )
    for part in ("forward", "backward", "optimizer")
)
