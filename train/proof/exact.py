"""All that a run relies on, shown on a miniature of the model's own config, in a few seconds on a processor:

rows        which rows are computed together changes nothing: 5, 2 and 1 of eight rows as one process
packed      samples that share a row do not see each other
adapters    every linear layer has one, and it gets a gradient
saved       the adapter is the same after it was saved, in plain PEFT too
attention   the quick one computes what the plain one does
asked       its loss is that of the scores which it answers with
cut         parts of it compute what the whole does (model_in_parts.py)
streamed    layers that come from their files compute what held ones do
precision   bf16 and fp16 give numbers
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from train.models import experts, hf, wrapper
from train.models.backends import Batch, ModelSpec, autocast
from train.models.load_streamed import quietly
from train.models.weights import trained_weights, write_weights
from train.plan.model.catalogue import EXPERTS, PER_TOKEN
from train.plan.model.verdict import Verdict
from train.proof import miniature, model_in_parts, reasons
from train.proof.count_weights import count
from train.proof.reasons import NotExactError

TOLERANCE = 5e-5
"""The relative difference that still counts as exact: what is exact is within 1.1e-5 (a recurrence in fp32, such as
qwen3_5's), what leaks beyond 6e-4."""
LENGTHS = (17, 9, 23, 11, 14, 6, 19, 12)
SHARES = (5, 2, 1)
TEXT_PART = "it would be saved without its part for pictures or sounds"
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
WIDTHS = ("moe_intermediate_size", "intermediate_size", "shared_expert_intermediate_size", "n_shared_experts")
CHOSEN = ("num_experts_per_tok", "top_k_experts")
Gradients = dict[str, Tensor]


def prove(config: Any) -> Verdict:
    """The verdict on a config that transformers has read."""
    started = time.perf_counter()
    family = str(config.model_type)
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
        verdict = examine(config, family, folder)
    if not verdict.refused:
        verdict = counted(verdict, config)
    return replace(verdict, seconds=round(time.perf_counter() - started, 1))


def counted(verdict: Verdict, config: Any) -> Verdict:
    try:
        return replace(verdict, shape=shape_of(config), counts=count(config))
    except Exception as error:  # a plan could not say what it takes
        return Verdict(family=verdict.family, refused=reasons.of("count", error))


def fails(name: str, check: Callable[[], None]) -> str:
    try:
        check()
    except Exception as error:  # a family may fail in any way, and each is a reason
        return reasons.of(name, error)
    return ""


def examine(config: Any, family: str, folder: str) -> Verdict:
    spec = ModelSpec(folder=folder, lora_r=2, max_seq_length=miniature.POSITIONS)
    built: list[nn.Module] = []

    def build() -> None:
        miniature.write(config, Path(folder))
        built.append(with_adapter(spec))

    refused = fails("build", build)
    for check in (adapters, rows, attention, asked, saved) if built else ():
        refused = refused or fails(check.__name__, lambda check=check: check(built[0], spec))  # type: ignore[misc]
    if refused:
        return Verdict(family=family, refused=refused)
    return Verdict(
        family=family,
        unpacked=fails("packed", lambda: packed(built[0])),
        held=fails("streamed", lambda: streamed(built[0], spec)),
        whole=fails("cut", lambda: model_in_parts.require(folder)),
        full=TEXT_PART if wrapper.is_wrapper(config) else "",
        bf16=fails("bf16", lambda: finite(spec, "bf16")),
        fp16=fails("fp16", lambda: finite(spec, "fp16")),
    )


def shape_of(config: Any) -> dict[str, int]:
    tied = bool(getattr(config, "tie_word_embeddings", False))
    config = wrapper.text_of(config)
    names = (*SIZES, "head_dim", "vocab_size", "max_position_embeddings")
    shape = {name: miniature.value(config, name) for name in names}
    if not shape["intermediate_size"]:
        shape["intermediate_size"] = miniature.value(config, "ffn_dim") or 4 * config.hidden_size
    shape |= {"tie_word_embeddings": tied, PER_TOKEN: per_token(config)}
    return {name: int(size) for name, size in shape.items() if isinstance(size, int)}


def per_token(config: Any) -> int | None:
    """The width of all experts that a token goes to; None where there are none."""
    sizes = {name: miniature.value(config, name) or 0 for name in (*EXPERTS, *WIDTHS, *CHOSEN)}
    if max(sizes[name] for name in EXPERTS) <= 1:
        return None
    width = sizes["moe_intermediate_size"] or sizes["intermediate_size"]
    shared = sizes["shared_expert_intermediate_size"] or width * sizes["n_shared_experts"]
    if sizes["top_k_experts"]:  # gemma4's word, whose experts have a dense layer beside them
        shared = sizes["intermediate_size"]
    return int(width * max(sizes[name] for name in CHOSEN) + shared)


# -- what is computed ------------------------------------------------------------------------------------------------


def with_adapter(spec: ModelSpec) -> nn.Module:
    """The half of an adapter that begins at zero has numbers, or no gradient would reach the other."""
    model = hf.build(spec)
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, weight in trained_weights(model).items():
            if "lora_B" in name:
                weight.copy_(torch.randn(weight.shape, generator=draw) * 0.05)
    return model


def batch_of(lengths: tuple[int, ...], *, in_one_row: bool = False) -> Batch:
    """Samples, each always the same: in rows that are padded to the longest of them, or all in one row."""
    samples = [sample(length) for length in lengths]
    if in_one_row:
        ids, places = torch.cat(samples), torch.cat([torch.arange(length) for length in lengths])
        labels = torch.cat([torch.cat([torch.tensor([-100]), one[1:]]) for one in samples])
        return {"input_ids": ids[None], "labels": labels[None], "position_ids": places[None]}
    longest = max(lengths)
    rows = [nn.functional.pad(one, (0, longest - len(one)), value=0) for one in samples]
    labels = torch.stack([nn.functional.pad(one, (0, longest - len(one)), value=-100) for one in samples])
    places = torch.stack([torch.cat([torch.arange(n), torch.arange(longest - n)]) for n in lengths])
    return {"input_ids": torch.stack(rows), "labels": labels, "position_ids": places}


def sample(length: int) -> Tensor:
    return torch.randint(3, miniature.VOCABULARY, (length,), generator=torch.Generator().manual_seed(length))


def computed(model: nn.Module, batches: list[Batch]) -> tuple[float, Gradients]:
    """The summed loss of all batches, and the gradient of every trained weight."""
    model.zero_grad()
    total = 0.0
    for batch in batches:
        loss = hf.loss_sum(model, batch)
        loss.backward()
        total += float(loss.detach())
    return total, {name: p.grad.clone() for name, p in trained_weights(model).items() if p.grad is not None}


def difference(found: tuple[float, Gradients], wanted: tuple[float, Gradients]) -> float:
    """The larger one of the loss's and the gradient's, relative to what is wanted."""
    if found[1].keys() != wanted[1].keys():
        return float("inf")
    own, whole = ([gradients[name].flatten().float() for name in sorted(wanted[1])] for _, gradients in (found, wanted))
    of_gradient = (torch.cat(own) - torch.cat(whole)).norm() / torch.cat(whole).norm()
    return max(float(of_gradient), abs(found[0] / wanted[0] - 1))


def alike(found: tuple[float, Gradients], wanted: tuple[float, Gradients], otherwise: str) -> None:
    if not (off := difference(found, wanted)) <= TOLERANCE:
        raise NotExactError(f"{otherwise} ({off:.1e} off)")


# -- the checks ------------------------------------------------------------------------------------------------------


def adapters(model: nn.Module, _: ModelSpec) -> None:
    if routers := experts.routers_with_adapter(model):
        raise NotExactError(f"its router would get an adapter, and then it chooses no experts: {routers[0]}")
    without = [*hf.without_adapter(model), *experts.uncovered(model)]
    if without:
        raise NotExactError(f"{len(without)} of its weights get no adapter: {without[0]}")
    gradients = computed(model, [batch_of(LENGTHS)])[1]
    dead = [name for name in trained_weights(model) if name not in gradients or not gradients[name].any()]
    if dead:
        raise NotExactError(f"{len(dead)} weights of its adapter get no gradient: {dead[0]}")


def rows(model: nn.Module, _: ModelSpec) -> None:
    """Twice the same must be the same, too: it has no state and no chance in it."""
    together = computed(model, [batch_of(LENGTHS)])
    alike(computed(model, [batch_of(LENGTHS)]), together, "the same rows have another loss the second time")
    shared = [batch_of(LENGTHS[end - count : end]) for end, count in zip(accumulate(SHARES), SHARES, strict=True)]
    alike(computed(model, shared), together, "its loss depends on which rows are computed together")
    alone = [batch_of((length,)) for length in LENGTHS]
    alike(computed(model, alone), together, "a row alone has another loss than beside others")


def packed(model: nn.Module) -> None:
    apart = computed(model, [batch_of((length,)) for length in LENGTHS])
    alike(computed(model, [batch_of(LENGTHS, in_one_row=True)]), apart, "samples that share a row see each other")


def attention(model: nn.Module, spec: ModelSpec) -> None:
    if hf.attention_of(hf.config_of(spec.folder)) == "eager":
        return
    own = hf.whole_of(model)
    quick = computed(model, [batch_of(LENGTHS)])
    quietly(own.set_attn_implementation, "eager")
    plain = computed(model, [batch_of(LENGTHS)])
    quietly(own.set_attn_implementation, "sdpa")
    alike(quick, plain, "its quick attention computes something else than its plain one")


def asked(model: nn.Module, _: ModelSpec) -> None:
    batch = batch_of(LENGTHS[:1])
    loss = float(nn.functional.cross_entropy(scores(model)[0, :-1], batch["labels"][0, 1:], reduction="sum"))
    off = abs(float(hf.loss_sum(model, batch).detach()) / loss - 1)
    if not off <= TOLERANCE:
        raise NotExactError(f"its loss is not that of the scores which it answers with ({off:.1e} off)")


def saved(model: nn.Module, spec: ModelSpec) -> None:
    """Loaded by Motley and by PEFT alone, the adapter gives the same scores."""
    import peft

    with tempfile.TemporaryDirectory() as folder:
        write_weights(Path(folder), model, trained_weights(model))
        again = hf.build(replace(spec, adapter=Path(folder)))
        config = hf.config_of(spec.folder)
        how = {"dtype": torch.float32, "attn_implementation": hf.attention_of(config)}
        base = wrapper.class_of(config).from_pretrained(spec.folder, local_files_only=True, **how)
        plain = peft.PeftModel.from_pretrained(base, folder)
    own, others = scores(model), {"itself": scores(again), "plain PEFT": scores(plain)}
    for what, found in others.items():
        if not (off := float((found - own).norm() / own.norm())) <= TOLERANCE:
            raise NotExactError(f"its saved adapter is another one for {what} ({off:.1e} off)")


def scores(model: nn.Module) -> Tensor:
    """The answers as somebody gets them who only asks the model."""
    batch, trains = batch_of(LENGTHS[:1]), model.training
    model.eval()
    with torch.no_grad():
        logits: Tensor = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False).logits
    model.train(trains)
    return logits


def streamed(model: nn.Module, spec: ModelSpec) -> None:
    batches = [batch_of(LENGTHS)]
    other = with_adapter(replace(spec, weights="stream"))
    alike(computed(other, batches), computed(model, batches), "streamed layers compute something else")


def finite(spec: ModelSpec, precision: str) -> None:
    model = with_adapter(replace(spec, precision=precision))
    with autocast(precision, "cpu"):
        loss, gradients = computed(model, [batch_of(LENGTHS)])
    if not (torch.isfinite(torch.tensor(loss)) and all(g.isfinite().all() for g in gradients.values())):
        raise NotExactError(f"in {precision} its loss or gradient is no number")
