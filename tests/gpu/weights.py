"""Random weights in the catalogue's shapes, and batches to feed them. No hub, no data set.

Exactness is measured on two layers of a real width, made on the card. Memory and speed need whole models: these come
from a sparse file, which takes no disk and reads as zeros, through the backend's own loading, and are filled there.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.gpu.line import Place

if TYPE_CHECKING:
    from train.plan.model.catalogue import Facts

FEW = "few-layers"
Batch = dict[str, Any]
Samples = list[list[list[int]]]
"""Of each row the samples, each its tokens."""


def config_of(facts: Facts, layers: int = 0) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(
        facts.family,
        hidden_size=facts.hidden,
        intermediate_size=facts.intermediate,
        num_hidden_layers=layers or facts.layers,
        num_attention_heads=facts.heads,
        num_key_value_heads=facts.kv_heads,
        head_dim=facts.head_dim,
        vocab_size=facts.vocab,
        max_position_embeddings=facts.positions,
        tie_word_embeddings=facts.tied,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )


def facts_of(name: str) -> Facts:
    from train.plan.model.catalogue import Facts, resolve_model

    facts = resolve_model(name).facts
    assert isinstance(facts, Facts)
    return facts


def width(place: Place) -> Facts:
    return facts_of("tinyllama" if place.on_card else "tiny")


def few_layers(place: Place, layers: int = 2) -> Path:
    """Layers of tinyllama's width, of tiny's on a CPU. Queries, keys and scores are large, so that what a token
    attends to decides its loss, and a leak between packed samples shows."""
    import torch
    from transformers import AutoModelForCausalLM

    folder = place.folder / FEW
    torch.manual_seed(5)
    facts = width(place)
    narrower = math.sqrt(128 / facts.hidden)
    with torch.device(place.device):
        model = AutoModelForCausalLM.from_config(config_of(facts, layers))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.mul_(8 * narrower if name.endswith(("q_proj.weight", "k_proj.weight")) else 1)
            weight.mul_(10 * narrower if name == "lm_head.weight" else 1)
    model.to(torch.bfloat16).save_pretrained(folder)  # so that fp32 and bf16 begin with the same numbers
    return with_tokenizer(folder)


def whole(place: Place, name: str) -> Path:
    """A folder as the hub's, of zeros that take no room."""
    import torch
    from transformers import AutoModelForCausalLM

    folder = place.folder / name
    folder.mkdir(exist_ok=True)
    config = config_of(facts_of(name))
    config.architectures = [f"{config.model_type.capitalize()}ForCausalLM"]
    config.dtype = "bfloat16"
    config.save_pretrained(folder)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for key, weight in model.named_parameters():  # a tied weight comes once
        end = at + 2 * weight.numel()
        header[key] = {"dtype": "BF16", "shape": list(weight.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
    return with_tokenizer(folder)


def with_tokenizer(folder: Path) -> Path:
    from train.models.model_files import model_folder

    for file in Path(model_folder("tiny")).iterdir():
        if "token" in file.name or file.suffix == ".jinja":
            shutil.copy(file, folder)
    return folder


def fill(model: Any) -> None:
    """Zeros become random numbers where the model lies; what is quantized, as quantized."""
    import torch

    with torch.no_grad():
        for name, weight in model.named_parameters():
            state = getattr(weight, "quant_state", None)
            if "lora_" in name:
                continue
            if state is not None:
                from bitsandbytes.functional import quantize_4bit

                numbers = torch.randn(state.shape, dtype=state.dtype, device=weight.device) * 0.02
                packed, weight.quant_state = quantize_4bit(
                    numbers, quant_type="nf4", compress_statistics=bool(state.nested)
                )
                weight.data.copy_(packed.reshape(weight.data.shape))
            elif weight.dtype == torch.int8:
                weight.random_(-127, 128)
                weight.SCB.fill_(0.06)
            elif weight.dim() == 1:
                weight.fill_(1)
            else:
                weight.normal_(std=0.02)


def adapter_weights(model: Any) -> None:
    """The same on every device and for every backend: by name, made on a CPU."""
    import torch

    from train.models.weights import trained_weights

    with torch.no_grad():
        for number, (_, weight) in enumerate(sorted(trained_weights(model).items())):
            made = torch.randn(weight.shape, generator=torch.Generator().manual_seed(number))
            weight.copy_(0.05 * made)


def ragged(vocabulary: int) -> Samples:
    """Rows of several samples of unlike length; none fills its row."""
    import random

    dice = random.Random(7)
    made = []
    for number in range(4):
        room, samples = 96 - 8 * number, []
        while room >= 12:
            size = dice.randint(8, min(room, 40))
            samples.append([dice.randrange(3, vocabulary) for _ in range(size)])
            room -= size
        made.append(samples)
    return made


def packed(rows: Samples, device: str) -> Batch:
    """As train/data/rows.py makes it: right-padded, positions from 0 in each sample, whose first token is no target."""
    import torch

    from train.data.rows import IGNORED

    length = max(sum(map(len, row)) for row in rows)
    shape = (len(rows), length)
    batch = {"input_ids": torch.zeros(shape, dtype=torch.long), "labels": torch.full(shape, IGNORED)}
    batch["position_ids"] = torch.zeros(shape, dtype=torch.long)
    for number, row in enumerate(rows):
        at = 0
        for sample in row:
            there = slice(at, at + len(sample))
            batch["input_ids"][number, there] = torch.tensor(sample)
            batch["labels"][number, there] = torch.tensor([IGNORED, *sample[1:]])
            batch["position_ids"][number, there] = torch.arange(len(sample))
            at += len(sample)
        batch["position_ids"][number, at:] = torch.arange(length - at)
    return {name: values.to(device) for name, values in batch.items()}


def targets(rows: Samples) -> int:
    return sum(len(sample) - 1 for row in rows for sample in row)


def uniform_loss(vocabulary: int) -> float:
    """Of a model whose scores are all the same."""
    return math.log(vocabulary)
