"""What the plan says a card needs, against the real peak under a limit as small as a smaller card; and the search for
the micro-batch with its step-down. The limit is the allocator's of one process: the card is left as it is."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.gpu import runs, weights
from tests.gpu.exact import precision_of
from tests.gpu.line import TRAINS, UNSLOTH_S, Figures, Line, Place, Verdict, furthest, off, together, within

GIB = 1 << 30
CARDS_GB = (8, 12, 16)
LENGTH = 512
OFF = 0.10
TRIAL_GB = 3


def measure(place: Place, model_name: str, backend: str, kept: str = "gpu") -> Figures:
    """`kept`: stream, where the base is brought to the card layer by layer."""
    import torch

    from train.engine.micro_batch_search import whole_step
    from train.models import backends
    from train.models.backends import ModelSpec
    from train.models.weights import trained_weights
    from train.plan.model.memory import Setup, largest_micro_batch, memory
    from train.recipes.sft import recipe as sft

    before = used_on_card()
    engine = backends.get(backend)
    facts, folder = weights.facts_of(model_name), weights.whole(place, model_name)
    setup = Setup(row_length=LENGTH, weights=kept, offloads=backend == "unsloth")
    fits = {gb: largest_micro_batch(facts, setup, gb * GIB, at_most=16) for gb in CARDS_GB}
    whole_card = torch.cuda.get_device_properties(0).total_memory
    smallest = min(gb for gb, rows in fits.items() if rows)
    limit_to(smallest * GIB)
    spec = ModelSpec(
        folder=str(folder), device=place.device, precision=precision_of(place), load_in="4bit", lora_r=16,
        gradient_checkpointing="unsloth" if backend == "unsloth" else "true", max_seq_length=LENGTH,
        weights=kept,
    )  # fmt: skip
    model: Any = engine.build(spec)
    parameters = list(trained_weights(model).values())
    module = backends.loss_module(engine, model, spec.precision, place.device)
    found = []
    for gb, rows in fits.items():
        if gb * GIB > whole_card:
            continue
        planned = memory(facts, replace(setup, micro_batch=max(1, rows))).total
        limit_to(gb * GIB - beside_tensors(before))
        torch.cuda.reset_peak_memory_stats()
        try:
            whole_step(
                module,
                sft.full_rows(max(1, rows), LENGTH, 1000, place.device),
                parameters,
                torch.optim.AdamW(parameters),
            )
            peak = torch.cuda.max_memory_allocated() + beside_tensors(before)
        except torch.OutOfMemoryError:
            peak = None
        found.append({"gb": gb, "rows": rows, "planned": planned, "peak": peak})
        for parameter in parameters:
            parameter.grad = None
    return {"loaded_under_gb": smallest, "cards": found}


def beside_tensors(before: int) -> int:
    """What this process has on the card beyond its tensors: CUDA's context and code."""
    import torch

    return max(0, used_on_card() - before - int(torch.cuda.memory_reserved()))


def limit_to(size_bytes: float) -> None:
    import torch

    torch.cuda.empty_cache()
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, size_bytes / whole))


def used_on_card() -> int:
    """By all programs, as the card itself says it."""
    card = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
    command = ["nvidia-smi", f"--id={card}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    return int(said.split()[0]) << 20


def judge(values: Figures) -> Verdict:
    """Where the plan says that not even one row fits, running out of memory is right as well."""
    parts = []
    for card in values["cards"]:
        what = f"{card['gb']} GB, {card['rows']} rows: planned {card['planned'] / 1e9:.2f}"
        if card["peak"] is None:
            parts.append((card["rows"] == 0, f"{what}, out of memory"))
        else:
            error = off(card["peak"], card["planned"])
            parts.append((error <= OFF, f"{what}, took {card['peak'] / 1e9:.2f} GB ({error:.0%} off)"))
    return together((bool(parts), f"loaded under {values['loaded_under_gb']} GB"), *parts)


def measure_trial(place: Place) -> Figures:
    """One run finds its micro-batch, another begins with all rows at once and steps down; both under a small limit."""
    from tests.train import cluster

    cluster.ROW_LENGTH = 1024
    folder = runs.apart(place, lambda: str(weights.few_layers(place)))
    own = {"model": folder, "max_steps": 3, "rows_per_step": 16, "micro_batch": ""}
    options = runs.options_for(place, **own)
    tried = runs.train(place.folder / "tried", options, [place.device], change=under(TRIAL_GB))
    forced = runs.train(place.folder / "forced", {**options, "micro_batch": 16}, [place.device], change=under(TRIAL_GB))
    return {
        "reason": next(r for r in tried.events(0, "start")[0]["reasons"] if r.startswith("micro-batch")),
        "tried": [event["nodes"]["node-0"]["micro_batch"] for event in tried.events(0, "step")],
        "forced": [event["nodes"]["node-0"]["micro_batch"] for event in forced.events(0, "step")],
        "warnings": [event["message"] for event in forced.events(0, "warning")],
        "warned": len(tried.events(0, "warning")),
        "losses": forced.losses(),
        "truth": tried.losses(),
    }


def under(gigabytes: int) -> Callable[[int], None]:
    return lambda rank: limit_to(gigabytes * GIB)


def judge_trial(values: Figures) -> Verdict:
    tried, forced = values["tried"], values["forced"]
    steady = len(set(tried)) == 1 and 1 <= tried[0] < 16 and not values["warned"]
    down = bool(values["warnings"]) and 1 <= forced[-1] <= 2 * tried[0]
    return together(
        ("by trial" in values["reason"] and steady, f"{values['reason']}; then {sorted(set(tried))} rows at a time"),
        (down, f"16 rows at once stepped down to {forced[-1]}, with {len(values['warnings'])} warnings"),
        within("losses apart by", furthest(values["losses"], values["truth"]), 1e-4),
    )


IN_4_BIT = ("a card of 8 GB", *TRAINS, "bitsandbytes")


def line(name: str, what: str, model_name: str, backend: str = "hf", kept: str = "gpu") -> Line:
    return Line(
        f"memory-{name}",
        f"memory planned for {what}, against the peak as on 8, 12, 16 GB",
        functools.partial(measure, model_name=model_name, backend=backend, kept=kept),
        judge,
        needs=(*IN_4_BIT, *(["unsloth"] if backend == "unsloth" else [])),
        simulated=True,
        limit_s=UNSLOTH_S if backend == "unsloth" else Line.limit_s,
    )


LINES = (
    *(
        line(f"{short}-{backend}", f"a {short} in 4 bit, {backend}", name, backend)
        for short, name in (("7b", "llama2-7b"), ("8b", "llama3.1-8b"))
        for backend in ("hf", "unsloth")
    ),
    line("7b-streamed", "a 7b in 4 bit that is streamed", "llama2-7b", kept="stream"),
    Line(
        "trial",
        "micro-batch by trial, and its step-down, as on a small card",
        measure_trial,
        judge_trial,
        needs=("a card", *TRAINS),
        simulated=True,
    ),
)
