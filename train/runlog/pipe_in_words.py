"""Machines that hold a model together, in words: the rows of a pipe are counted where they begin, and the machines
behind compute other layers of the same rows. Pure. In events layers are counted from 0, for people from 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from train.runlog.event_types import NodeStep
from train.runlog.state import node_of
from train.runlog.tail import Event


@dataclass(frozen=True, slots=True)
class Part:
    """What one node computes of a pipe's rows."""

    first: int
    end: int
    layers: int
    """How many layers the whole model has."""
    begins: str
    """The node at which the rows of the pipe are counted."""
    rows: int

    @property
    def words(self) -> str:
        return layer_words(self.first, self.end)

    @property
    def work(self) -> float:
        """The node's part of the computing, in rows through all layers."""
        return self.rows * (self.end - self.first) / self.layers


def layer_words(first: int, end: int) -> str:
    return f"layer {end}" if end - first == 1 else f"layers {first + 1}-{end}"


def parts_of(step: Event) -> dict[str, Part]:
    """The part of each node that is in a pipe."""
    parts: dict[str, Part] = {}
    for pipe in _pipes(step.get("nodes", {})):
        begins, rows = node_of(next(iter(pipe))), sum(int(facts["rows"]) for facts in pipe.values())
        whole = max(int(facts["layers"][1]) for facts in pipe.values())
        for process, facts in pipe.items():
            node, (first, end) = node_of(process), facts["layers"]
            first = parts[node].first if node in parts and parts[node].begins == begins else first
            parts[node] = Part(first, end, whole, begins, rows)
    return parts


def behind(step: Event) -> dict[str, Part]:
    """The part of each node that has no rows of its own: it computes on with those of another one."""
    return {node: part for node, part in parts_of(step).items() if node != part.begins}


def _pipes(processes: Mapping[str, NodeStep]) -> Iterator[dict[str, NodeStep]]:
    """A pipe's processes stand behind one another, and the first has the first layer."""
    pipe: dict[str, NodeStep] = {}
    for process, facts in processes.items():
        if pipe and facts.get("layers", [0])[0] == 0:
            yield pipe
            pipe = {}
        if "layers" in facts:
            pipe[process] = facts
    if pipe:
        yield pipe
