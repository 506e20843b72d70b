"""A random mask would depend on the cluster: a base is trained without."""

from __future__ import annotations

import re
from typing import Any

DROPS = re.compile(r".*(dropout|drop_path_rate|dropout_prob)")


def switched_off(config: Any) -> dict[str, float]:
    """In transformers' config of a model; what was set there, as it is now."""
    found = {name: 0.0 for name, value in config.to_dict().items() if DROPS.fullmatch(name) and value}
    for name, value in found.items():
        setattr(config, name, value)
    return found
