"""Who takes rows of a step: a rank alone, or the ranks of a pipe together, each with some of the model's layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RowTakers:
    names: tuple[str, ...]
    """The names of all ranks."""
    groups: tuple[tuple[int, ...], ...]
    """The ranks of each worker, in the order of their layers."""
    layers: tuple[tuple[int, int] | None, ...]
    """The layers of each rank: from the first to before the second; None: all."""

    @property
    def labels(self) -> list[str]:
        return ["+".join(self.names[rank] for rank in group) for group in self.groups]

    @property
    def cut(self) -> bool:
        return any(own is not None for own in self.layers)

    def of(self, rank: int) -> int:
        return next(at for at, group in enumerate(self.groups) if rank in group)

    def group(self, rank: int) -> tuple[int, ...]:
        return self.groups[self.of(rank)]

    def leads(self, rank: int) -> bool:
        """Whether this rank counts its worker's rows: one of each does."""
        return self.group(rank)[0] == rank

    def seen(self, nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """A step event's nodes, worker by worker: a pipe computes until its last stage has done."""
        by_worker: dict[str, Mapping[str, Any]] = {}
        for label, group in zip(self.labels, self.groups, strict=True):
            stages = [nodes[self.names[rank]] for rank in group]
            seconds = max(node.get("pipe_s", node["compute_s"]) for node in stages)
            by_worker[label] = stages[0] if len(stages) == 1 else {"rows": stages[0]["rows"], "compute_s": seconds}
        return by_worker


def alone(names: Sequence[str]) -> RowTakers:
    return RowTakers(tuple(names), tuple((rank,) for rank in range(len(names))), (None,) * len(names))
