"""What each line of events.jsonl says, one type for each kind of event; docs/inside/events.md has the same for people.

A class without `total` has what every such event has; one that inherits from it adds what some runs have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict


class Start(TypedDict):
    run: str
    step: int
    total_steps: int
    rows_per_step: int
    rows: int
    nodes: Sequence[str]
    weights: int
    decisions: Mapping[str, str]
    identity: Mapping[str, object]
    reasons: Sequence[str]


class Doing(TypedDict):
    node: str
    what: str


class EveryNodeStep(TypedDict):
    rows: int
    first: int
    rows_crc: int
    micro_batch: int
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


class Pairs(TypedDict, total=False):
    """Means over a step's answers that are compared."""

    margin: float
    accuracy: float
    chosen_log_p: float
    rejected_log_p: float
    kl: float
    chosen_reward: float
    rejected_reward: float


class MadeRows(TypedDict, total=False):
    """What a step event has where its rows are made for it."""

    rollout: Rollout
    pairs: Mapping[str, float]
    """Pairs, by name."""


class EveryStep(TypedDict):
    step: int
    loss: float
    lr: float
    grad_norm: float
    tokens: int
    targets: int
    step_s: float
    sync_s: float
    sync: str
    shares: Sequence[float]
    nodes: Mapping[str, NodeStep]


class Step(EveryStep, MadeRows):
    pass


class Balance(TypedDict):
    step: int
    shares: Mapping[str, int]
    speeds: Mapping[str, float]
    reason: str


class Local(TypedDict):
    step: int
    steps: int
    reason: str


class Best(TypedDict):
    """An evaluation on the held-out rows, as the best one is kept."""

    step: int
    loss: float
    metrics: Mapping[str, float]


class Eval(Best):
    targets: int
    best: bool


class Samples(TypedDict):
    step: int
    lines: Sequence[Mapping[str, str]]


class EarlyStop(TypedDict):
    step: int
    best: int
    loss: float
    reason: str


class Proof(TypedDict):
    step: int
    adapter: str


class Checkpoint(TypedDict):
    step: int
    folder: str
    seconds: float
    staged: bool


class Profile(TypedDict):
    step: int
    first: int
    bytes: int
    seconds: float


class Warning(TypedDict):
    step: int
    message: str


class Piece(TypedDict):
    step: int
    piece: int
    node: str
    step_s: float
    words: str
    nodes: Mapping[str, Mapping[str, int]]


class Note(TypedDict):
    piece: int
    node: str
    fact: Mapping[str, object]


class Stopped(TypedDict):
    step: int
    reason: str


class Failed(TypedDict):
    step: int
    node: str
    message: str
    trace: str


class Done(TypedDict):
    step: int
    loss: float | None
    seconds: float


KINDS: Mapping[str, type[Mapping[str, object]]] = {
    "start": Start,
    "doing": Doing,
    "step": Step,
    "balance": Balance,
    "local": Local,
    "eval": Eval,
    "samples": Samples,
    "early_stop": EarlyStop,
    "proof": Proof,
    "checkpoint": Checkpoint,
    "profile": Profile,
    "warning": Warning,
    "piece": Piece,
    "note": Note,
    "stopped": Stopped,
    "failed": Failed,
    "done": Done,
}
