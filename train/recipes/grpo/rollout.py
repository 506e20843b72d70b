"""The answers of one step, as rows to train on, with what follows from their rewards."""

from __future__ import annotations

import math
import statistics
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from train.data.rows import IGNORED
from train.plan.settings.read_settings import GrpoConfig
from train.runlog import event_types

LOG_P = ("old_log_p", "base_log_p")
TINY = 1e-4
"""Added to a spread, so that answers of nearly the same reward do not pull as hard as others."""


@dataclass(kw_only=True)
class Row:
    """An answer with what it answers, as it is trained on."""

    prompt: list[int]
    tokens: list[int]
    old_log_p: list[float] = field(default_factory=list)
    """The log-probability of each token under the model that made it, where several steps train on it."""
    base_log_p: list[float] = field(default_factory=list)
    """The base's, where the run is held near it."""

    def numbers(self, *, old: bool, base: bool) -> list[float]:
        return [*map(float, self.tokens), *(self.old_log_p if old else []), *(self.base_log_p if base else [])]

    @classmethod
    def of(cls, prompt: list[int], numbers: Sequence[float], tokens: int, *, old: bool, base: bool) -> Row:
        rest = list(numbers[tokens:])
        return cls(
            prompt=prompt,
            tokens=[int(token) for token in numbers[:tokens]],
            old_log_p=rest[:tokens] if old else [],
            base_log_p=rest[-tokens:] if base else [],
        )


@dataclass(kw_only=True)
class Made:
    """An answer of this node."""

    row: Row
    log_p: list[float]
    """The log-probability of each token as it was drawn."""
    rewards: list[float]
    """What each function gave."""
    total: float


@dataclass(frozen=True)
class Facts:
    """What all nodes know of an answer, as numbers that travel."""

    reward: float
    tokens: int
    cut: bool
    """Whether it reached its most tokens without an end."""
    divergence: float
    """The sum over its tokens of how far the model is from its base."""
    by_function: tuple[float, ...]

    def numbers(self) -> list[float]:
        own = (self.reward, self.tokens, self.cut, self.divergence, *self.by_function)
        return [float(value) for value in own]

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Facts:
        reward, tokens, cut, divergence, *by_function = numbers
        return cls(reward, int(tokens), bool(cut), divergence, tuple(by_function))


class KeptRollout(TypedDict):
    """A rollout in a checkpoint."""

    number: int
    facts: list[list[float]]
    rows: list[tuple[list[int], list[float], list[float]]]
    """Tokens and both kinds of log-probabilities of each answer."""
    told: event_types.Rollout


SIZE = 4
"""Numbers of an answer, beside those of each function."""


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """The answers that a step trains on; every node has all of them."""

    number: int
    """How many were made before it."""
    facts: list[Facts]
    rows: list[Row]
    targets: NDArray[np.int32]
    """Tokens of each answer that are trained on."""
    advantages: NDArray[np.float64]
    weights: NDArray[np.float64]
    """What each answer's sum over its tokens is multiplied by, before the step's sum is divided by all of them."""
    told: event_types.Rollout
    pad_id: int
    made_s: float = 0.0
    """Seconds in which this node has made and scored its own, for this step."""
    waited_s: float = 0.0

    def batch(self, indices: list[int], position: int = 0) -> dict[str, NDArray[Any]]:
        """Right-padded, as rows of text."""
        batch = filled([self.rows[index] for index in indices], self.pad_id)
        for row, index in enumerate(indices):
            if not self.targets[index]:
                batch["labels"][row] = IGNORED
        batch["advantages"] = self.advantages[indices].astype(np.float32)
        batch["weights"] = self.weights[indices].astype(np.float32)
        return batch

    def token_count(self, indices: list[int]) -> int:
        return sum(len(row.prompt) + len(row.tokens) for row in (self.rows[index] for index in indices))

    def told_of(self, seen: list[float]) -> event_types.MadeRows:
        told = self.told.copy()
        if seen:
            told["clipped"] = seen[0] / max(1, int(self.targets.sum()))
        return {"rollout": told}

    def again(self, names: Sequence[str]) -> Rollout:
        """The rollout for another step on the same answers, which cost nobody anything; `names`: of all nodes."""
        zeros = dict.fromkeys(names, 0)
        nothing = event_types.Rollout(generate_s=zeros, generate_wait_s=zeros, made=zeros, taken_over=0)
        return replace(self, told=self.told | nothing, made_s=0.0, waited_s=0.0)

    def state(self, number: int) -> KeptRollout | None:
        """What a run needs to go on in the middle of it: the model that made it is no more."""
        if number != self.number:
            return None
        return {
            "number": self.number,
            "facts": [one.numbers() for one in self.facts],
            "rows": [(row.tokens, row.old_log_p, row.base_log_p) for row in self.rows],
            "told": self.told,
        }


def rollout_of(
    config: GrpoConfig, number: int, facts: list[Facts], rows: list[Row], *, told: event_types.Rollout, pad_id: int
) -> Rollout:
    """All that follows from the answers and their rewards."""
    targets = trained_tokens(config, facts)
    return Rollout(
        number=number,
        facts=facts,
        rows=rows,
        targets=targets,
        advantages=advantages([one.reward for one in facts], config.group, config.scale_rewards),
        weights=weights(config, targets),
        told=told,
        pad_id=pad_id,
    )


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


def filled(some: Sequence[Row], pad_id: int) -> dict[str, NDArray[Any]]:
    """Prompts with their answers, the answers as what is to be predicted."""
    shape = (len(some), max((len(one.prompt) + len(one.tokens) for one in some), default=1))
    input_ids = np.full(shape, pad_id, dtype=np.int64)
    labels = np.full(shape, IGNORED, dtype=np.int64)
    known = {name: np.zeros(shape, np.float32) for name in LOG_P if any(getattr(one, name) for one in some)}
    for row, one in enumerate(some):
        start, end = len(one.prompt), len(one.prompt) + len(one.tokens)
        input_ids[row, :end] = [*one.prompt, *one.tokens]
        labels[row, start:end] = one.tokens
        for name, values in known.items():
            values[row, start:end] = getattr(one, name)
    places = np.broadcast_to(np.arange(shape[1], dtype=np.int64), shape).copy()
    return {"input_ids": input_ids, "labels": labels, "position_ids": places, **known}


def crc_of(tokens: Sequence[int]) -> int:
    return zlib.crc32(np.array(tokens, dtype="<i4").tobytes())


def told(config: GrpoConfig, facts: Sequence[Facts], rows: Sequence[Row], names: Sequence[str]) -> event_types.Rollout:
    rewards = [one.reward for one in facts]
    groups = np.array(rewards).reshape(-1, config.group)
    tokens = [one.tokens for one in facts]
    answers = zlib.crc32(np.array([crc_of(row.tokens) for row in rows], dtype="<u4").tobytes())
    summary = event_types.Rollout(
        reward=statistics.fmean(rewards),
        spread=statistics.pstdev(rewards),
        by_function=by_function(facts, names),
        answer_tokens=statistics.fmean(tokens),
        longest=max(tokens),
        cut=statistics.fmean(one.cut for one in facts),
        equal_groups=float((np.ptp(groups, axis=1) == 0).mean()),
        answers_crc=answers,
    )
    if config.beta:
        summary["kl"] = sum(one.divergence for one in facts) / sum(tokens)
    return summary


def by_function(facts: Sequence[Facts], names: Sequence[str]) -> dict[str, float]:
    """Each function's mean over the answers that it applies to."""
    found: dict[str, float] = {}
    for at, name in enumerate(names):
        values = [one.by_function[at] for one in facts if not math.isnan(one.by_function[at])]
        found |= {name: statistics.fmean(values)} if values else {}
    return found
