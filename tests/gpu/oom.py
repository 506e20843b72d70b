"""Out of memory in the forward pass, in the backward pass and in the optimizer, and a card that breaks: what the run
makes of it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.gpu import runs
from tests.gpu.line import Figures, Line, Place, Verdict, furthest, together, told, within

STEP = 6
"""In which it happens; step 4 has been saved."""
IMPOSSIBLE_BYTES = 1 << 50
CARD = "card"


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


def breaks(device: str) -> Callable[[int], None]:
    """A kernel's own assertion, after which the card answers nothing; beside NCCL's thread, which sees it first."""

    def change(rank: int) -> None:
        import torch
        import torch.distributed as dist

        from train.engine import loop
        from train.parallel.process_group import World, prepare_nccl

        compute = loop.compute

        def start_group(self: World, *, nccl: bool) -> None:
            if device != "cpu":
                prepare_nccl()
                dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
                dist.all_reduce(torch.ones(1, device=device))

        def breaking(run: Any, mine: list[int], weight: float) -> Any:
            if run.step + 1 == STEP and device == "cpu":
                raise torch.AcceleratorError("CUDA error: device-side assert triggered, made by this line")
            if run.step + 1 == STEP:
                torch.zeros(2, device=device)[torch.full((1,), 9, device=device)].sum().item()
            return compute(run, mine, weight)

        vars(loop).update(compute=breaking)
        World.start_group = start_group  # type: ignore[method-assign]

    return change


def measure(place: Place, part: str) -> Figures:
    truth = runs.begin_truth(place)
    options, home, cause = runs.options_for(place), place.folder / "run", place.folder / "cause.json"
    change = breaks(place.device) if part == CARD else once_in(part, place.device)
    first = runs.Runs(home, options, [place.device], change=change, failure=cause)
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
    if values["part"] in ("optimizer", CARD):
        return together(curve, *died_and_resumed(values))
    sizes, half = values["micro_batches"], runs.OPTIONS["micro_batch"] // 2
    lowered = sizes == [2 * half] * (STEP - 1) + [half] * (len(sizes) - STEP + 1)
    warned = any("out of memory" in warning for warning in values["warnings"])
    return together(
        curve,
        told(values["codes"] == [0], "the run went to its end", "the run did not survive it"),
        told(lowered, f"from step {STEP} on {half} rows at a time", f"rows at a time were {sizes}"),
        told(warned, "and said so", "without a warning"),
    )


def died_and_resumed(values: Figures) -> list[tuple[bool, str]]:
    """A step that may be half done is not saved: the last proven checkpoint counts."""
    cause = values["cause"] or {}
    sign = "cuda error" if values["part"] == CARD else "memory"
    named = any(sign in message.lower() for message in values["failed"])
    own = cause.get("kind") == "own"
    saved = [[0, 4], [0, STEP - 1]] if values["part"] == CARD else [[0, 4]]  # a card that still gives its weights back
    return [
        (values["codes"] in ([1], [7]), "the process ended" if any(values["codes"]) else "it did not end"),
        told(named, "the cause was named", f"no cause was named: {values['failed']}"),
        told(own, "as this node's own", f"as {cause.get('kind', 'nothing')}"),
        (values["starts"] in saved, f"began at steps {values['starts']}"),
    ]


def line(name: str, about: str, part: str) -> Line:
    return Line(name, about, functools.partial(measure, part=part), judge)


LINES = (
    line("oom-forward", "out of memory in the forward pass", "forward"),
    line("oom-backward", "out of memory in the backward pass", "backward"),
    line("oom-optimizer", "out of memory in the optimizer", "optimizer"),
    line("card-error", "a card that breaks, beside NCCL: its process ends by itself, and the run is resumed", CARD),
)
