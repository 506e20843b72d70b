"""What each answer counts in the loss, by its reward beside those of the other answers to its prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from train.plan.settings.read_settings import GrpoConfig

if TYPE_CHECKING:
    from train.recipes.grpo.rollout import Facts

TINY = 1e-4
"""Added to a spread, so that answers of nearly the same reward do not pull as hard as others."""


def trained_tokens(config: GrpoConfig, facts: Sequence[Facts]) -> NDArray[np.int32]:
    return np.array([0 if config.mask_overlong and one.cut else one.tokens for one in facts], dtype=np.int32)


def advantages(rewards: Sequence[float], group: int, scale: str) -> NDArray[np.float64]:
    """How much better each answer is than the others to its prompt; all of a group without a difference have none."""
    groups = np.array(rewards, dtype=np.float64).reshape(-1, group)
    apart = np.where(np.ptp(groups, axis=1, keepdims=True) > 0, groups - groups.mean(axis=1, keepdims=True), 0.0)
    if scale == "group":
        apart = apart / (groups.std(axis=1, ddof=1, keepdims=True) + TINY)
    elif scale == "batch":
        apart = apart / (groups.std(ddof=1) + TINY)
    found: NDArray[np.float64] = apart.reshape(-1)
    return found


def weights(config: GrpoConfig, targets: NDArray[np.int32]) -> NDArray[np.float64]:
    """A step's loss is its sum divided by all its tokens, which is dapo's; the others are weighed so that it becomes
    theirs."""
    count, whole = len(targets), float(targets.sum())
    if config.loss in ("grpo", "gspo"):  # each answer's mean, and the mean of these
        return whole / (np.maximum(1, targets) * count)
    if config.loss == "dr_grpo":  # an answer's sum over what it could have been at most
        return np.full(count, whole / (config.max_new_tokens * count))
    return np.ones(count)
