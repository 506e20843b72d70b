"""Motley's training package: one loop that gives the same loss curve on any cluster. `python -m train --help`.

From Python: `train.fit(recipe, settings)` (engine/fit.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from train.engine.fit import fit

__all__ = ["fit"]


def __getattr__(name: str) -> Any:
    """Only who asks for it needs torch."""
    if name != "fit":
        raise AttributeError(f"module 'train' has no attribute '{name}'")
    from train.engine.fit import fit

    return fit
