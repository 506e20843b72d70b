"""hf and unsloth in 16, 8 and 4 bit: packed samples as alone, micro-batches alike, no token lost, and the first loss
against an fp32 run on a CPU. A control must fail: without positions that begin again, samples see each other."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from tests.gpu import runs
from tests.gpu.line import TRAINS, UNSLOTH_S, Figures, Line, Place, Verdict, furthest, off, together, told, within
from tests.gpu.weights import FEW, Samples, adapter_weights, few_layers, packed, ragged, targets, uniform_loss, width

TOLERANCE = {"fp32": 2e-5, "bf16": 1e-3, "fp16": 5e-4}
EIGHT_BIT = 5e-3
"""LLM.int8 rounds what goes in as well."""
CLEAR = 5
"""Times what was found: so much would a leak be."""
GRADIENT = {"fp32": 1e-4, "bf16": 5e-2, "fp16": 2e-2}
LENGTH = 96


def measure(place: Place, backend: str, load_in: str) -> Figures:
    rows = ragged(width(place).vocab)
    known = runs.apart(
        place, lambda: reference(few_layers(place), load_in, rows)
    )  # unsloth changes transformers for all
    import torch

    from train.models import backends
    from train.models.weights import trained_weights

    engine = backends.get(backend)
    folder = place.folder / FEW
    precision = precision_of(place)
    model: Any = engine.build(spec_for(folder, place.device, precision, load_in))
    adapter_weights(model)
    module = backends.loss_module(engine, model, precision, place.device)

    def loss_of(some: Samples) -> float:
        with torch.no_grad():
            return float(module(packed(some, place.device)))

    def gradient(micro_batch: int) -> Any:
        model.zero_grad()
        for at in range(0, len(rows), micro_batch):
            module(packed(rows[at : at + micro_batch], place.device)).backward()
        return torch.cat([p.grad.flatten().float().cpu() for _, p in sorted(trained_weights(model).items())])

    losses = {str(n): sum(loss_of(rows[at : at + n]) for at in range(0, len(rows), n)) for n in (1, 2, 4)}
    gradients = {n: gradient(n) for n in (1, 2, 4)}
    return {
        "reference": known,
        "precision": precision,
        "load_in": load_in,
        "losses": losses,
        "alone": sum(loss_of([[sample]]) for row in rows for sample in row),
        "without_resets": leaking(module, packed(rows, place.device)),
        "gradients_off": [float((gradients[n] - gradients[1]).norm() / gradients[1].norm()) for n in (2, 4)],
        "tokens": {"in": targets(rows), "trained": trained_tokens(model, loss_of, rows)},
        "held_in": held_in(model),
    }


def precision_of(place: Place) -> str:
    from train.models.device import precision_of as of

    return of(place.device)


def spec_for(folder: Path, device: str, precision: str, load_in: str) -> Any:
    from train.models.backends import ModelSpec

    return ModelSpec(
        folder=str(folder), device=device, precision=precision, load_in=load_in, lora_r=8, max_seq_length=LENGTH,
        gradient_checkpointing="false",
    )  # fmt: skip


def held_in(model: Any) -> str:
    """The form of the base as it really is: a backend may ignore what it was asked for."""
    kinds = {type(module).__name__ for module in model.modules()}
    return "4bit" if "Linear4bit" in kinds else "8bit" if "Linear8bitLt" in kinds else "16bit"


def leaking(module: Any, batch: dict[str, Any]) -> float:
    """A row at a time: each a sequence of its own, whichever backend lays rows behind one another."""
    import torch

    count, length = batch["input_ids"].shape
    straight = torch.arange(length, device=batch["input_ids"].device)[None]
    rows = [{name: values[n : n + 1] for name, values in batch.items()} for n in range(count)]
    with torch.no_grad():
        return float(sum(float(module({**row, "position_ids": straight})) for row in rows))


def trained_tokens(model: Any, loss_of: Any, rows: Samples) -> float:
    """Where all scores are the same, each target costs the logarithm of the vocabulary: so they can be counted from
    outside, whatever the backend cuts."""
    import torch

    head = model.get_output_embeddings().weight
    kept = head.detach().clone()
    with torch.no_grad():
        head.zero_()
        counted = loss_of(rows) / uniform_loss(int(model.config.vocab_size))
        head.copy_(kept)
    return round(float(counted), 3)


def reference(folder: Path, load_in: str, rows: Samples) -> float:
    """transformers + peft on the CPU in fp32, every sample alone; the base held in the same form."""
    import torch

    from train.models import backends

    model: Any = backends.get("hf").build(spec_for(folder, "cpu", "fp32", load_in))
    if load_in == "16bit":
        model.base_model.model.set_attn_implementation("eager")
    adapter_weights(model)
    with torch.no_grad():
        return float(sum(plain_loss(model, sample) for row in rows for sample in row))


def plain_loss(model: Any, sample: list[int]) -> float:
    import torch

    tokens = torch.tensor(sample)
    scores = model(input_ids=tokens[None]).logits[0, :-1].double().log_softmax(-1)
    return float(-scores[torch.arange(len(sample) - 1), tokens[1:]].sum())


def judge(values: Figures) -> Verdict:
    losses = values["losses"]
    limit = EIGHT_BIT if values["load_in"] == "8bit" else TOLERANCE[values["precision"]]
    alone, leak = off(losses["1"], values["alone"]), off(values["without_resets"], values["alone"])
    count = values["tokens"]
    return together(
        (values["held_in"] == values["load_in"], f"base in {values['held_in']}"),
        within("packed = alone", alone, limit),
        within("micro-batch 1 = 2 = 4", furthest(list(losses.values()), [losses["1"]] * len(losses)), limit),
        within(
            "their gradients",
            max(values["gradients_off"]),
            max(5 * limit if limit == EIGHT_BIT else 0, GRADIENT[values["precision"]]),
        ),
        (round(count["trained"]) == count["in"], f"{count['trained']:.0f} of {count['in']} target tokens trained"),
        within("first loss as in fp32 on a CPU", off(losses["4"], values["reference"]), 2 * limit),
        (leak > CLEAR * alone, f"control: without resets {leak:.1e}"),
    )


def judge_names(values: Figures) -> Verdict:
    hf, unsloth = set(values["hf"]), set(values["unsloth"])
    odd = sorted(hf ^ unsloth)
    return together(
        told(bool(hf) and not odd, f"{len(hf)} trained weights of the same names", f"in one alone: {odd[:4]}"),
        told(values["shapes_alike"], "of the same shapes", "their shapes differ"),
    )


def measure_names(place: Place) -> Figures:
    """Each in a process of its own: unsloth changes transformers for all."""
    folder = runs.apart(place, lambda: str(few_layers(place)))
    shapes = {
        name: runs.apart(place, functools.partial(trained_shapes, place, name, folder)) for name in ("hf", "unsloth")
    }
    alike = all(shapes["hf"].get(key) == shape for key, shape in shapes["unsloth"].items())
    return {**{name: sorted(found) for name, found in shapes.items()}, "shapes_alike": alike}


def trained_shapes(place: Place, backend: str, folder: str) -> dict[str, list[int]]:
    from train.models import backends
    from train.models.weights import trained_weights

    model = backends.get(backend).build(spec_for(Path(folder), place.device, precision_of(place), "16bit"))
    return {key: list(weight.shape) for key, weight in trained_weights(model).items()}


def line(backend: str, load_in: str) -> Line:
    needs = ["unsloth"] * (backend == "unsloth") + ["bitsandbytes"] * (load_in != "16bit")
    return Line(
        f"exact-{backend}-{load_in}",
        f"{backend}, {load_in}: packed = alone, micro-batch 1/2/4, tokens in = trained, first loss",
        functools.partial(measure, backend=backend, load_in=load_in),
        judge,
        needs=(*TRAINS, *needs),
        simulated=(backend, load_in) == ("unsloth", "8bit"),  # its CPU backend leaves it in 16 bit
        limit_s=UNSLOTH_S if backend == "unsloth" else Line.limit_s,
    )


LINES = (
    Line(
        "names",
        "unsloth builds all-linear, with the trained names of hf",
        measure_names,
        judge_names,
        needs=(*TRAINS, "unsloth"),
        limit_s=UNSLOTH_S,
    ),
    *(line(backend, load_in) for backend in ("hf", "unsloth") for load_in in ("16bit", "8bit", "4bit")),
)
