"""A random mask would depend on the cluster: a base is trained without."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

DROPS = re.compile(r".*(dropout|drop_path_rate|dropout_prob)")


def switched_off(config: Any) -> dict[str, float]:
    """In transformers' config of a model; what was set there, as it is now."""
    found = {name: 0.0 for name, value in config.to_dict().items() if DROPS.fullmatch(name) and value}
    for name, value in found.items():
        setattr(config, name, value)
    return found


def switched_off_in(model: nn.Module) -> list[str]:
    """In a model that is made already: in its layers, and in the numbers that a layer hands to a function."""
    found: set[str] = set()
    for module in model.modules():
        is_layer = isinstance(module, nn.modules.dropout._DropoutNd)
        for name in ["p"] if is_layer else [name for name in vars(module) if DROPS.fullmatch(name)]:
            value = getattr(module, name)
            if isinstance(value, float) and value > 0:
                found.add(f"{'dropout' if is_layer else name} {value:g}")
                setattr(module, name, 0.0)
    return sorted(found)
