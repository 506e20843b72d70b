"""What a node reports of itself in each heartbeat: its condition, the generation that it follows, how far it is."""

from __future__ import annotations

from dataclasses import dataclass

from train.cluster.notice_ledger import EMPTY, Ledger


@dataclass(frozen=True, kw_only=True)
class Generation:
    number: int
    host: str
    members: tuple[str, ...]
    """Its nodes in rank order, the host first."""
    port: int = 0


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """The run is over, for all nodes."""

    done: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """What a node reports of itself."""

    name: str
    number: int = 0
    """The number of the newest generation that it ever took part in, also before it was restarted."""
    generation: Generation | None = None
    reachable: tuple[str, ...] = ()
    is_new: bool = False
    """Whether it started, or woke, a moment ago, and may not have asked all others yet."""
    condition: str = "fit"
    """Its condition: fit, unfit (its own workers cannot run), resting (the same, with a retry later), away (it steps
    aside for whoever uses the machine) or leaving."""
    cause: str = ""
    until: float = 0.0
    """When it will no longer be away, where that is known."""
    group: str = "none"
    """The state of its workers in its generation: none, running, failed, done."""
    loading: bool = False
    """Whether its workers read or compute before the first step."""
    ready: bool = True
    """Whether a group with it need not wait until its workers have loaded."""
    step: int = 0
    begun: bool = False
    """Whether this launch has had a generation already."""
    verdict: RunEnd | None = None
    ledger: Ledger = EMPTY
    can_send: bool = False
    """Whether it can send notices of the run, by the address that it has."""
    sending: str = ""
    """The key of the notice that it is sending now."""
