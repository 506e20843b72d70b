"""A random mask would depend on the cluster: a base is trained without, and the start of a run says so."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

from train.models.wrapper import text_of

DROPS = re.compile(r".*(dropout|drop_path_rate|dropout_prob)")


def switched_off(config: Any) -> dict[str, float]:
    """Switches dropout off in transformers' config of a model; returns what was set there."""
    config = text_of(config)
    settings = config.to_dict() if config else {}
    dropped = {name: value for name, value in settings.items() if DROPS.fullmatch(name) and value}
    for name in dropped:
        setattr(config, name, 0.0)
    return dropped


def note(model: nn.Module, dropped: list[str]) -> None:
    model.switched_off = dropped


def why(model: nn.Module) -> list[str]:
    dropped = ", ".join(getattr(model, "switched_off", ()))
    return [f"dropout: the base's {dropped} is set to 0: the curve would depend on the cluster"] if dropped else []


def in_words(dropped: dict[str, float]) -> list[str]:
    return [f"{name} {value:g}" for name, value in dropped.items()]


def switched_off_in(model: nn.Module) -> list[str]:
    """Switches dropout off in a model that is made: in its layers, and in the numbers that a layer hands to a
    function."""
    dropped: set[str] = set()
    for module in model.modules():
        is_layer = isinstance(module, nn.modules.dropout._DropoutNd)
        for name in ["p"] if is_layer else [name for name in vars(module) if DROPS.fullmatch(name)]:
            value = getattr(module, name)
            if isinstance(value, float) and value > 0:
                dropped.add(f"{'dropout' if is_layer else name} {value:g}")
                setattr(module, name, 0.0)
    return sorted(dropped)
