"""Motley's training package: one loop that gives the same loss curve on any cluster. `python -m train --help`.

From Python: `train.sft(model=…, dataset=…)`, `train.fit(recipe, settings)` (engine/fit.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from train.engine.fit import fit, sft

__all__ = ["fit", "sft"]


def __getattr__(name: str) -> Any:
    """Only who asks for it needs torch."""
    if name not in __all__:
        raise AttributeError(f"module 'train' has no attribute '{name}'")
    from train.engine import fit

    return getattr(fit, name)
