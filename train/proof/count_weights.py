"""Counts the weights of a model, and of the adapter that PEFT puts around it, where both are there without memory: what
a plan computes bytes from."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import torch
from torch import nn

from train.models import experts, hf
from train.models.backends import ModelSpec
from train.models.wrapper import class_of
from train.plan.model.counts import Counts


def count(config: Any) -> Counts:
    own = copy.deepcopy(config)
    if hasattr(own, "quantization_config"):
        del own.quantization_config  # it says how the files are, not what the model is
    with torch.device("meta"):
        model = class_of(own)._from_config(own, dtype=torch.float32)
    model.tie_weights()
    output = model.get_output_embeddings()
    linear = sizes(one.weight for one in model.modules() if is_quantised(one) and one is not output)
    layers = layers_of(model)
    inside, table = sizes(layers.parameters()), sizes(model.get_input_embeddings().parameters(recurse=False))
    scores = sizes(output.parameters(recurse=False)) if output else {}
    known = inside | table | scores
    return Counts(
        layers=len(layers),
        linear=sum(size for key, size in inside.items() if key in linear),
        others=sum(size for key, size in inside.items() if key not in linear),
        table=sum(table.values()),
        output=sum(size for key, size in scores.items() if key not in table),
        rest=sum(size for key, size in sizes(model.parameters()).items() if key not in known),
        largest=max(linear.values(), default=0),
        experts=experts_of(model),
        adapters=adapters(model),
    )


def is_quantised(module: nn.Module) -> bool:
    """Whether bitsandbytes does it: a class of a family's own stays as it is."""
    from transformers.pytorch_utils import Conv1D

    return type(module) is nn.Linear or isinstance(module, Conv1D)


def sizes(weights: Any) -> dict[int, int]:
    """The size of each weight, once however often it is used."""
    return {id(weight): weight.numel() for weight in weights}


def layers_of(model: Any) -> nn.ModuleList:
    """They have several names, and are the longest list that there is."""
    return max((one for one in model.get_decoder().modules() if isinstance(one, nn.ModuleList)), key=len)


def experts_of(model: Any) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for path, weight in experts.fused(model).items():
        sums[experts.leaf(path)] += weight.numel()
    return dict(sums)


def adapters(model: Any) -> dict[str, int]:
    """Counts adapters by the last name of what each is around: a layer, or the weight that has all experts. `model` is
    changed."""
    import peft
    from peft.tuners.lora import LoraLayer

    with torch.device("meta"):
        with_adapter = peft.get_peft_model(model, hf._lora(model, ModelSpec(folder="", lora_r=1)))
    sums: Counter[str] = Counter()
    for path, module in with_adapter.named_modules():
        if isinstance(module, LoraLayer):
            weight = getattr(module, "parameter_name", "weight")
            name = weight if weight != "weight" else path.replace(".base_layer", "").rpartition(".")[2]
            parts = [module.lora_A, module.lora_B]
            sums[name] += sum(each.numel() for part in parts for each in part.parameters())
    return dict(sums)
