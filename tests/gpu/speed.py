"""Tokens a second of hf and of unsloth on a 7B in 4 bit, against each other and against what the card allows: the time
in which its measured arithmetic and memory bandwidth could have done the same."""

from __future__ import annotations

import functools
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from tests.gpu import weights
from tests.gpu.exact import precision_of
from tests.gpu.line import TRAINS, UNSLOTH_S, Figures, Line, Place, Verdict, together

ROWS, LENGTH = 2, 512
PASSES = 3
"""Forward, again for the checkpoints, backward to the inputs; frozen weights need no gradient of their own."""
REPEATS = 3


def measure(place: Place, backend: str) -> Figures:
    from train.models import backends
    from train.models.backends import ModelSpec
    from train.models.model_files import model_folder
    from train.models.weights import trained_weights
    from train.parallel.gradient_exchange import FlatSync
    from train.recipes.sft import recipe as sft

    engine = backends.get(backend)
    name = "llama2-7b" if place.on_card else "tiny"
    folder = str(weights.whole(place, name)) if place.on_card else model_folder(name)
    precision = precision_of(place)
    spec = ModelSpec(
        folder=folder, device=place.device, precision=precision, load_in="4bit" if place.on_card else "16bit",
        gradient_checkpointing="unsloth" if backend == "unsloth" else "true", max_seq_length=LENGTH, lora_r=16,
    )  # fmt: skip
    model: Any = engine.build(spec)
    if place.on_card:
        weights.fill(model)
    sync = FlatSync(
        backends.loss_module(engine, model, precision, place.device),
        list(trained_weights(model).values()),
        "fp32",
        place.device,
    )
    batch = sft.full_rows(ROWS, LENGTH, int(model.config.vocab_size), place.device)

    def step() -> None:
        sync.gradients([batch], 1 / (ROWS * LENGTH))
        model.zero_grad(set_to_none=True)

    step()
    seconds = median_s(step, place.device)
    frozen = sum(p.numel() * p.element_size() for p in model.parameters() if not p.requires_grad)
    from train.plan.model.memory import linear_parameters

    facts = weights.facts_of(name)
    used = linear_parameters(facts) + facts.hidden * facts.vocab
    found = {"model": name, "tokens_per_s": ROWS * LENGTH / seconds, "step_s": seconds}
    found |= {"flops": 2 * used * PASSES * ROWS * LENGTH, "bytes": frozen * PASSES}
    return {**found, **what_the_card_gives(place), "hf_tokens_per_s": earlier(place) if backend == "unsloth" else None}


def what_the_card_gives(place: Place) -> Figures:
    """Of a large product of matrices, and of a copy."""
    import torch

    side = 8192 if place.on_card else 512
    kind = torch.bfloat16 if precision_of(place) == "bf16" else torch.float16 if place.on_card else torch.float32
    one, two = (torch.randn(side, side, device=place.device).to(kind) for _ in range(2))
    product_s = median_s(lambda: one @ two, place.device)
    source = torch.ones((1 << 28) if place.on_card else (1 << 22), dtype=torch.float32, device=place.device)
    target = torch.empty_like(source)
    copy_s = median_s(lambda: target.copy_(source), place.device)
    return {"flops_per_s": 2 * side**3 / product_s, "bytes_per_s": 2 * 4 * source.numel() / copy_s}


def median_s(act: Callable[[], Any], device: str) -> float:
    import torch

    def once() -> float:
        began = time.perf_counter()
        act()
        if device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    once()
    return statistics.median(once() for _ in range(REPEATS))


def earlier(place: Place) -> float | None:
    file = place.results / "speed-hf.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    return (found.get("values") or {}).get("tokens_per_s")


def judge(values: Figures) -> Verdict:
    """A ratio above one is a mistake of the measurement; a very small one, of the trainer."""
    allowed_s = max(values["flops"] / values["flops_per_s"], values["bytes"] / values["bytes_per_s"])
    ratio = allowed_s / values["step_s"]
    parts = [
        (
            0.02 < ratio <= 1.1,
            f"{values['tokens_per_s']:.0f} tokens/s of a {values['model']}, {ratio:.0%} of what this machine allows",
        )
    ]
    if values["hf_tokens_per_s"]:
        faster = values["tokens_per_s"] / values["hf_tokens_per_s"]
        parts.append((faster >= 1, f"{faster:.2f} times hf"))
    return together(*parts)


def line(backend: str, *needs: str, simulated: bool = False, limit_s: float = Line.limit_s) -> Line:
    return Line(
        f"speed-{backend}",
        f"tokens a second of {backend}, 7B in 4 bit (tiny on a CPU), against what the card allows",
        functools.partial(measure, backend=backend),
        judge,
        needs=(*TRAINS, *needs),
        simulated=simulated,
        limit_s=limit_s,
    )


LINES = (
    line("hf"),
    # a figure of its CPU backend would say nothing
    line("unsloth", "unsloth", "bitsandbytes", "a card of 8 GB", simulated=True, limit_s=UNSLOTH_S),
)
