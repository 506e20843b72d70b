"""What a machine says of itself before a launch: the answer of plugins/modules/launch_info.py as types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    name: str
    bytes: int
    used: int = 0
    capability: str = ""
    """Its compute capability; empty where the driver does not say."""
    power_limit: str = ""
    """Watts, as the driver writes them."""

    @property
    def short_name(self) -> str:
        return short_name(self.name)


def short_name(name: str) -> str:
    return name.removeprefix("NVIDIA GeForce ").removeprefix("NVIDIA ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """The way to the other machines."""

    nic: str = ""
    mbit: float = 0
    """The speed that its network card reports; 0 where it reports none, as Wi-Fi."""
    wireless: bool = False
    why: str = ""
    """What is wrong with it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundRun:
    """A run whose files lie there."""

    launched: Mapping[str, Any]
    """Its launch.json."""
    step: int = 0
    """The step of its newest checkpoint."""
    done: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRun:
    """What a run measured while it computed, by node."""

    run: str
    launched: Mapping[str, Any]
    speeds: Mapping[str, float] = field(default_factory=dict)
    """Rows per second."""
    layer_speeds: Mapping[str, float] = field(default_factory=dict)
    """Layers of a row per second, of nodes that had a part of the model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    home: str
    cores: int
    memory_bytes: int
    free_bytes: float
    """The free room of the disk that has its home; infinite where nobody can look."""
    route: Route
    cards: Sequence[Card] = ()
    run_on: str = ""
    waiting: Sequence[str] = ()
    """The runs of its queue that have not ended."""
    port_taken: int = 0
    """The port of agents, where another program has it."""
    missed: Sequence[str] = ()
    """The machines that did not answer it on a port of runs."""
    obeys: bool = False
    """Whether it can be put to sleep and its card be limited."""
    loads: bool = False
    """Whether it has begun to load what any run needs."""
    runs: Mapping[str, FoundRun] = field(default_factory=dict)
    measured: Sequence[MeasuredRun] = ()
    """Newest first."""
    proof: Mapping[str, Any] = field(default_factory=dict)
    """The verdict on the model, where this machine was asked for it."""

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        facts: dict[str, Any] = {name: found[name] for name in cls.__dataclass_fields__ if name in found}
        facts["route"] = Route(**found["route"] | {"mbit": found["route"].get("mbit") or 0})
        facts["cards"] = [Card(**card) for card in found.get("cards", ())]
        facts["runs"] = {
            name: FoundRun(**{key: run[key] for key in FoundRun.__dataclass_fields__ if key in run})
            for name, run in found.get("runs", {}).items()
        }
        facts["measured"] = [MeasuredRun(**run) for run in found.get("measured", ())]
        return cls(**facts)
