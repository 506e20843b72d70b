"""LoRA's relatives: which of them go with what else, each refusal with its reason. Pure.

dora               PEFT's DoRA: the strength of each layer's outputs is trained apart from their direction
lora_init          the adapter begins as parts of the base (train/models/lora_init.py)
loraplus_lr_ratio  the second matrix learns faster
lora_dropout       a mask for each row and layer (train/models/row_noise.py)
neftune_alpha      noise on the embeddings for each row
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from train.errors import BadInput
from train.plan.settings.every_run import Holding, at_least
from train.plan.settings.pipes import parse_pipes

if TYPE_CHECKING:
    from train.plan.settings.sft import SftConfig

NAMES = ("dora", "lora_init", "lora_dropout", "neftune_alpha")
"""What is computed beside plain LoRA in every step."""
OF_ADAPTER = ("dora", "lora_init", "lora_dropout", "loraplus_lr_ratio")
WHOLE = "the layers' weights must be there when the adapter is made"
AGAIN = "a stage computes the rows of several micro-batches again, and the mask would be that of the newest"
NOT_WITH = {
    "dora": {"weights": ("stream", WHOLE), "pipes": ("", WHOLE), "load_in": ("8bit", "PEFT's DoRA knows no 8 bit")},
    "lora_init": {"weights": ("stream", WHOLE), "pipes": ("", WHOLE)},
    "lora_dropout": {"pipes": ("", AGAIN)},
}
"""What → setting → the value with which it cannot be, and why; for pipes that is any group of machines."""
INSTEAD = {"weights": "gpu", "pipes": "off"}
"""What `auto` becomes beside it."""


def settle(config: SftConfig) -> None:
    """BadInput where it cannot be; else what is `auto` becomes what can be."""
    for name, least in (("loraplus_lr_ratio", 1), ("lora_dropout", 0), ("neftune_alpha", 0)):
        at_least(config, name, least)
    if config.lora_dropout >= 1:
        raise BadInput(f"lora_dropout: {config.lora_dropout} is not below 1")
    used = {name for name in OF_ADAPTER if is_set(config, name)}
    if used and config.method == "full":
        name = min(used)
        raise BadInput(f"{name}: it is of an adapter, and method=full has none", fix=f"leave {name} out")
    if config.adapter and "lora_init" in used:
        raise BadInput("lora_init: the run begins with trained weights, those of adapter", fix="leave lora_init out")
    if {"dora", "lora_init"} <= used:
        raise BadInput("dora and lora_init do not go together: PEFT could not load what comes out", fix="take one")
    for name in (name for name in NOT_WITH if name in used):
        for other, (value, why) in NOT_WITH[name].items():
            current = getattr(config, other)
            if current == value or (other == "pipes" and parse_pipes(current)):
                raise BadInput(f"{name} does not go with {other}={current}: {why}", fix="leave one of the two out")
            if current == "auto" and other in INSTEAD:
                object.__setattr__(config, other, INSTEAD[other])
    if config.backend == "unsloth" and (why := beyond_unsloth(config.holding)):
        raise BadInput(f"backend: {why}", fix="use backend: hf")


def is_set(config: SftConfig, name: str) -> bool:
    return bool(getattr(config, name) != type(config).__dataclass_fields__[name].default)


def beyond_unsloth(held: Holding) -> str:
    """Why unsloth cannot hold the model; empty where it can."""
    used = {
        "DoRA": held.dora,
        "lora_init": held.lora_init != "default",
        "lora_dropout": held.lora_dropout > 0,
        "neftune_alpha": held.neftune_alpha > 0,
    }
    name = next((name for name, on in used.items() if on), "")
    return f"{name}: unsloth's kernels have none that is the same on every machine" if name else ""


def wrong_form(held: Holding, load_in: str) -> str:
    """Why a base that is held in this form will not do; empty where it does."""
    if held.lora_init != "default" and load_in != "16bit":
        return f"lora_init: {held.lora_init} takes the base apart, and in {load_in} it is rounded"
    return "dora: PEFT's DoRA knows no 8 bit" if held.dora and load_in == "8bit" else ""


def called(config: SftConfig) -> str:
    """What is trained, in a word or two."""
    plus = "+" if config.loraplus_lr_ratio != 1 else ""
    kind = {"pissa": "PiSSA", "olora": "OLoRA"}.get(config.lora_init, "DoRA" if config.dora else "LoRA")
    return kind + plus
