"""What each line of events.jsonl and of the agents' logs says, with its types; docs/inside/events.md has the same for
people.

Every event also has `event`, its kind, and `time`. Standard library alone: it is sent to the nodes, with tail.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from types import UnionType
from typing import Any, TypedDict, get_args, get_origin, get_type_hints, is_typeddict


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
    kl: float | None
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
    pairs: Mapping[str, float | None]


class Best(TypedDict):
    """What is kept of the best evaluation on the held-out rows."""

    step: int
    loss: float
    metrics: Mapping[str, float]


class Sample(TypedDict):
    given: str
    wrote: str


class AgentsEvent(TypedDict):
    """What each line of members.jsonl has."""

    node: str
    epoch: int
    step: int
    host: str
    nodes: list[str]
    reason: str


class MemberEvent(AgentsEvent, total=False):
    """What some kinds have as well."""

    how: dict[str, str]
    why: dict[str, str]
    whose: str
    rule: str
    done: bool
    too_few: bool


class CardReading(TypedDict, total=False):
    """A line of gpu.jsonl."""

    node: str
    celsius: float | None
    watts: float | None
    used_mb: float | None


FIELDS: Mapping[str, Mapping[str, Any]] = {
    "start": {
        **{"run": str, "step": int, "total_steps": int, "rows_per_step": int, "rows": int},
        **{"nodes": list[str] | dict[str, dict[str, int]], "weights": int, "decisions": dict, "identity": dict},
        **{"reasons": list[str]},
    },
    "doing": {"node": str, "what": str},
    "step": {
        **{"step": int, "loss": float | None, "lr": float, "grad_norm": float | None, "tokens": int, "targets": int},
        **{"step_s": float, "sync_s": float, "sync": str, "shares": list[float], "nodes": dict[str, NodeStep]},
    },
    "balance": {"step": int, "shares": dict[str, float], "speeds": dict[str, float], "reason": str},
    "local": {"step": int, "steps": int, "reason": str},
    "eval": {"step": int, "loss": float | None, "targets": int, "best": bool, "metrics": dict[str, float | None]},
    "samples": {"step": int, "lines": list[Sample]},
    "early_stop": {"step": int, "best": int, "loss": float | None, "reason": str},
    "proof": {"step": int, "adapter": str},
    "checkpoint": {"step": int, "folder": str, "seconds": float, "staged": bool},
    "profile": {"step": int, "first": int, "bytes": int, "seconds": float},
    "warning": {"step": int, "message": str},
    "piece": {
        "step": int,
        "piece": int,
        "node": str,
        "step_s": float,
        "words": str,
        "nodes": dict[str, dict[str, int]],
    },
    "note": {"piece": int, "node": str, "fact": dict},
    "stopped": {"step": int, "reason": str},
    "failed": {"step": int, "node": str, "message": str, "trace": str},
    "done": {"step": int, "loss": float | None, "seconds": float},
}
"""The fields of each kind of event; a step may have those of MadeRows as well."""

# -- whether a line is one ---------------------------------------------------------------------------------------------

NEEDED = frozenset(
    "step total_steps nodes loss tokens step_s sync_s compute_s wait_s node what piece fact words message reason lines "
    "given wrote best reward by_function answer_tokens cut equal_groups generate_s epoch".split()
)
"""What those who show a run take for granted, and what every Motley has written; older ones lack some of the rest."""
TOO_LARGE = 1e300
"""An int beyond all floats would end whoever computes with it."""
LATEST = 1e11

Check = Callable[[Any], bool]


def is_event(facts: Any, *, whole: bool = False) -> bool:
    """Whether it is a line of a log, and all that it has is of its kind: a disk, a hand or a node may have changed it.
    `whole`: it also has all that is taken for granted."""
    if not isinstance(facts, dict) or (whole and not facts.keys() >= {"event", "time"}):
        return False
    kind, at, printed = facts.get("event", ""), facts.get("time", 0.0), facts.get("text", "")
    if not (isinstance(kind, str) and isinstance(printed, str) and is_number(at) and 0 <= at < LATEST):
        return False
    check = CHECKS[whole].get(OF_AGENT if "epoch" in facts else kind)
    return check is None or check(facts)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and -TOO_LARGE < value < TOO_LARGE


def is_count(value: Any) -> bool:
    """Whether it may be the number of a step, or of whatever is counted."""
    return isinstance(value, int) and 0 <= value < TOO_LARGE


def check_of(kind: Any, needed: Set[str]) -> Check:
    """What tells whether a value that JSON gave is of this kind, and has what is needed."""
    parts = get_args(kind)
    if is_typeddict(kind):
        return check_of_fields(get_type_hints(kind), needed)
    if kind == float | None:  # older runs wrote Infinity and NaN, not null
        return lambda value: value is None or isinstance(value, float) or is_number(value)
    if isinstance(kind, UnionType):
        checks = [check_of(part, needed) for part in parts]
        return lambda value: any(check(value) for check in checks)
    if parts:
        return check_of_items(check_of(parts[-1], needed), by_name=get_origin(kind) in (dict, Mapping))
    if kind in (int, float):
        return is_number if kind is float else is_count
    return lambda value: isinstance(value, kind)


def check_of_items(of_item: Check, *, by_name: bool) -> Check:
    if by_name:
        return lambda value: isinstance(value, dict) and all(map(of_item, value.values()))
    return lambda value: isinstance(value, list) and all(map(of_item, value))


def check_of_fields(kinds: Mapping[str, Any], needed: Set[str]) -> Check:
    checks, own = {name: check_of(kind, needed) for name, kind in kinds.items()}, kinds.keys() & needed

    def fits(facts: Any) -> bool:
        return (
            isinstance(facts, dict)
            and own <= facts.keys()
            and all(checks[name](value) for name, value in facts.items() if name in checks)
        )

    return fits


def checks_with(needed: Set[str]) -> dict[str, Check]:
    made_rows = get_type_hints(MadeRows)
    of_kind = {kind: check_of_fields({**made_rows, **fields}, needed) for kind, fields in FIELDS.items()}
    return {**of_kind, "gpu": check_of(CardReading, needed), OF_AGENT: check_of(MemberEvent, needed)}


OF_AGENT = "an agent's, whatever its kind"
CHECKS = (checks_with(frozenset()), checks_with(NEEDED))
"""The checks by the kind of event; the second ones are of an event that is whole."""
