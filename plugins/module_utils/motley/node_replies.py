# MIT License, see LICENSE
"""What a node answers to the verbs of start_stop_status.py, key by key: a JSON object each. Standard library alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

Event = dict[str, Any]
"""A line of a run's event logs, as train/runlog/events.py writes it: each kind has its own keys."""


class Failed(TypedDict, total=False):
    """A verb that may be refused says why in `failed`, with its fix; the other keys are then missing."""

    failed: str


# -- what runs -------------------------------------------------------------------------------------------------------


class ProcessFacts(TypedDict):
    part: str
    """agent, warm or worker."""
    how: str
    """What started it: unit, detached or by hand."""


class PeerView(TypedDict, total=False):
    answers: bool
    machine: bool
    """Whether the machine is on, with or without an agent."""
    how: str


class AsideView(TypedDict):
    rule: str
    cause: str
    until: float


class AgentView(TypedDict, total=False):
    """What the agent says of this moment (agent.json); of a run of `./motley torchrun` fewer keys, and `script`."""

    time: float
    since: float
    state: str
    reason: str
    step: int
    epoch: int
    saves_s: float
    aside: AsideView
    peers: dict[str, PeerView]
    gpus: list[dict[str, str]]
    script: str
    last: list[str]
    peer: bool


class SlurmJob(TypedDict, total=False):
    shown: str
    job: str
    state: str
    start: str
    why: str


class SlurmRun(TypedDict):
    launched: dict[str, object]
    step: int
    done: bool
    changed: float
    job: str


class LookOfAll(TypedDict):
    time: float
    on: bool
    agent: int
    how: str
    processes: int
    wanted: bool
    run: str
    now: AgentView
    start: Event
    step: Event
    events: list[Event]
    members: list[Event]
    since: float
    checkpoint: int
    paused: str
    free_bytes: int | None
    gpus: list[dict[str, str]]


class Look(LookOfAll, total=False):
    took_s: list[float]
    """The seconds of its newest steps; empty where its work comes in pieces, the newest of which are in `events`."""
    waiting: list[str]
    """The runs of the queue that have not ended."""
    job: SlurmJob


class NowLine(TypedDict, total=False):
    """A line `now` of those who follow a run."""

    time: float
    on: bool
    wanted: bool
    now: AgentView
    words: str
    """What a run printed that ended with nothing in its event logs."""


# -- what is done to a run -------------------------------------------------------------------------------------------


class Started(Failed, total=False):
    run: str
    pid: int
    how: str
    time: float
    up: float
    note: str


class Stopped(TypedDict, total=False):
    was_on: bool
    run: str
    script: str
    checkpoint: int
    forced: int
    left: Sequence[int | str]
    """Process ids; of Kubernetes names of objects."""
    ports: list[int]
    seconds: float
    kept: str
    others: str
    program: str
    stuck: str


class Queued(TypedDict):
    queue: str
    time: float
    run: str
    launch: str
    nodes: list[tuple[str, str]]
    now: AgentView


class Begun(Failed, total=False):
    begun: str


class Paused(Failed, total=False):
    was_on: bool
    until: str
    left: list[int]
    seconds: float


# -- what runs there were --------------------------------------------------------------------------------------------


class Launched(TypedDict, total=False):
    """What a run was asked for, as its launch.json says."""

    time: str
    given: dict[str, object]
    asked: dict[str, object]


class RunFactsOfAll(TypedDict):
    step: int
    steps: int
    loss: float | None
    reward: float | None
    time: float
    done: bool
    script: str
    checkpoint: int
    bytes: int
    model: str


class RunFacts(RunFactsOfAll, total=False):
    launched: Launched
    swept: dict[str, str]
    on: bool
    waits: bool


class RunsOfAll(TypedDict):
    runs: dict[str, RunFacts]
    on: str


class Runs(RunsOfAll, total=False):
    waiting: list[str]


class Hashes(TypedDict):
    files: dict[str, str]
    run: str
    on: bool
    script: str


class Places(TypedDict):
    run: str
    places: list[str]
    one_node: list[str]
