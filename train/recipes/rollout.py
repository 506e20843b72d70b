"""The answers of one step, as rows to train on: what all nodes know of all of them, and what this one has itself."""

from __future__ import annotations

import math
import statistics
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train.data.rows import IGNORED
from train.models.drawing import Answer
from train.plan.settings.config import GrpoConfig

TINY = 1e-4
"""Beside a spread, so that answers of nearly the same reward do not pull as hard as others."""


@dataclass(kw_only=True)
class Made:
    """An answer of this node."""

    prompt: list[int]
    answer: Answer
    rewards: list[float]
    """What each function gave."""
    total: float
    base_log_p: list[float] = field(default_factory=list)
    """The base's log-probability of each token, where the run is held near it."""


@dataclass(frozen=True)
class Facts:
    """What all nodes know of an answer, as numbers that travel."""

    reward: float
    tokens: int
    cut: bool
    """Whether it reached its most tokens without an end."""
    crc: int
    divergence: float
    """The sum over its tokens of how far the model is from its base."""
    by_function: tuple[float, ...]

    def numbers(self) -> list[float]:
        own = (self.reward, self.tokens, self.cut, self.crc, self.divergence, *self.by_function)
        return [float(value) for value in own]

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Facts:
        reward, tokens, cut, crc, divergence, *by_function = numbers
        return cls(reward, int(tokens), bool(cut), int(crc), divergence, tuple(by_function))


SIZE = 5
"""Numbers of an answer, beside those of each function."""


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """The rows of a step."""

    facts: list[Facts]
    """What is known of all answers of the step."""
    targets: NDArray[np.int32]
    """Tokens of each answer that are trained on."""
    advantages: NDArray[np.float64]
    weights: NDArray[np.float64]
    """By what each answer's sum over its tokens is multiplied, before the step's sum is divided by all of them."""
    own: dict[int, Made]
    """By its number within the step."""
    told: dict[str, Any]
    pad_id: int
    made_s: float
    """Seconds in which this node has made and scored its own."""
    waited_s: float

    def batch(self, indices: list[int], position: int = 0) -> dict[str, NDArray[Any]]:
        """Right-padded, as rows of text."""
        made = [self.own[index] for index in indices]
        shape = (len(made), max((len(one.prompt) + len(one.answer.tokens) for one in made), default=1))
        batch = filled(made, shape, self.pad_id)
        for row, index in enumerate(indices):
            if not self.targets[index]:
                batch["labels"][row] = IGNORED
        batch["advantages"] = self.advantages[indices].astype(np.float32)
        batch["weights"] = self.weights[indices].astype(np.float32)
        return batch

    def told_of(self, seen: list[float]) -> dict[str, Any]:
        """What the step event says of it."""
        return {"rollout": self.told}

    def token_count(self, indices: list[int]) -> int:
        return sum(len(one.prompt) + len(one.answer.tokens) for one in (self.own[index] for index in indices))


def filled(made: Sequence[Made], shape: tuple[int, int], pad_id: int) -> dict[str, NDArray[Any]]:
    """Prompts with their answers, the answers as what is to be predicted."""
    input_ids = np.full(shape, pad_id, dtype=np.int64)
    labels = np.full(shape, IGNORED, dtype=np.int64)
    base = np.zeros(shape, dtype=np.float32)
    for row, one in enumerate(made):
        start, end = len(one.prompt), len(one.prompt) + len(one.answer.tokens)
        input_ids[row, :end] = [*one.prompt, *one.answer.tokens]
        labels[row, start:end] = one.answer.tokens
        base[row, start : start + len(one.base_log_p)] = one.base_log_p
    places = np.broadcast_to(np.arange(shape[1], dtype=np.int64), shape).copy()
    found = {"input_ids": input_ids, "labels": labels, "position_ids": places}
    return found | ({"base_log_p": base} if any(one.base_log_p for one in made) else {})


def crc_of(tokens: Sequence[int]) -> int:
    return zlib.crc32(np.array(tokens, dtype="<i4").tobytes())


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
    if config.loss == "grpo":  # each answer's mean, and the mean of these
        return whole / (np.maximum(1, targets) * count)
    if config.loss == "dr_grpo":  # an answer's sum over what it could have been at most
        return np.full(count, whole / (config.max_new_tokens * count))
    return np.ones(count)


def told(config: GrpoConfig, facts: Sequence[Facts], names: Sequence[str]) -> dict[str, Any]:
    rewards = [one.reward for one in facts]
    groups = np.array(rewards).reshape(-1, config.group)
    tokens = [one.tokens for one in facts]
    answers = zlib.crc32(np.array([one.crc for one in facts], dtype="<u4").tobytes())
    near = {"kl": sum(one.divergence for one in facts) / sum(tokens)} if config.beta else {}
    return {
        "reward": statistics.fmean(rewards),
        "spread": statistics.pstdev(rewards),
        "by_function": by_function(facts, names),
        "answer_tokens": statistics.fmean(tokens),
        "longest": max(tokens),
        "cut": statistics.fmean(one.cut for one in facts),
        "equal_groups": float((np.ptp(groups, axis=1) == 0).mean()),
        "answers_crc": answers,
        **near,
    }


def by_function(facts: Sequence[Facts], names: Sequence[str]) -> dict[str, float]:
    """Each function's mean over the answers that it applies to."""
    found: dict[str, float] = {}
    for at, name in enumerate(names):
        values = [one.by_function[at] for one in facts if not math.isnan(one.by_function[at])]
        found |= {name: statistics.fmean(values)} if values else {}
    return found
