"""What each line of events.jsonl says, with its types; docs/inside/events.md has the same for people.

Every event also has `event`, its kind, and `time`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import TypedDict


class EveryNodeStep(TypedDict):
    rows: int
    first: int
    rows_crc: int
    micro_batch: int
    part: float
    compute_s: float
    wait_s: float
    tokens_per_s: float
    gpu_gb: float


class NodeStep(EveryNodeStep, total=False):
    """What one process did in a step; the last two are of a stage of a pipeline."""

    layers: Sequence[int]
    pipe_s: float


class Rollout(TypedDict, total=False):
    """What came of a step's answers."""

    reward: float
    spread: float
    by_function: Mapping[str, float]
    answer_tokens: float
    longest: int
    cut: float
    equal_groups: float
    answers_crc: int
    kl: float
    clipped: float
    generate_s: Mapping[str, float]
    generate_wait_s: Mapping[str, float]
    made: Mapping[str, int]
    taken_over: int


PAIRS = ("margin", "accuracy", "chosen_log_p", "rejected_log_p", "kl", "chosen_reward", "rejected_reward")
"""Means over a step's answers that are compared; a step has those that its loss knows."""


class MadeRows(TypedDict, total=False):
    """What a step event has where its rows are made for it."""

    rollout: Rollout
    pairs: Mapping[str, float]


class Best(TypedDict):
    """What is kept of the best evaluation on the held-out rows."""

    step: int
    loss: float
    metrics: Mapping[str, float]


FIELDS: Mapping[str, Mapping[str, type | UnionType]] = {
    "start": {
        **{"run": str, "step": int, "total_steps": int, "rows_per_step": int, "rows": int, "nodes": list},
        **{"weights": int, "decisions": dict, "identity": dict, "reasons": list},
    },
    "doing": {"node": str, "what": str},
    "step": {
        **{"step": int, "loss": float, "lr": float, "grad_norm": float | None, "tokens": int, "targets": int},
        **{"step_s": float, "sync_s": float, "sync": str, "shares": list, "nodes": dict},  # NodeStep, by name
    },
    "balance": {"step": int, "shares": dict, "speeds": dict, "reason": str},
    "local": {"step": int, "steps": int, "reason": str},
    "eval": {"step": int, "loss": float, "targets": int, "best": bool, "metrics": dict},
    "samples": {"step": int, "lines": list},
    "early_stop": {"step": int, "best": int, "loss": float | None, "reason": str},
    "proof": {"step": int, "adapter": str},
    "checkpoint": {"step": int, "folder": str, "seconds": float, "staged": bool},
    "profile": {"step": int, "first": int, "bytes": int, "seconds": float},
    "warning": {"step": int, "message": str},
    "piece": {"step": int, "piece": int, "node": str, "step_s": float, "words": str, "nodes": dict},
    "note": {"piece": int, "node": str, "fact": dict},
    "stopped": {"step": int, "reason": str},
    "failed": {"step": int, "node": str, "message": str, "trace": str},
    "done": {"step": int, "loss": float | None, "seconds": float},
}
"""The fields of each kind of event; a step may have those of MadeRows as well."""
