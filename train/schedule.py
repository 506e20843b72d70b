"""The learning rate as a function of the step: nothing to save, nothing to restore."""

import math


def learning_rate(step: int, *, peak: float, kind: str, warmup_steps: int, total_steps: int) -> float:
    """The rate of step `step` (from 0): linear warm-up, then cosine or linear to zero, or constant."""
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    if kind == "constant":
        return peak
    done = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    left = 1 - done if kind == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return peak * max(0.0, left)
