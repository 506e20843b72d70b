"""The machines that take part, each as it was looked at."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GIB = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One machine that takes part."""

    name: str
    address: str
    look: dict[str, Any]
    device: str
    """cuda, or cpu: as the environment of the node can compute."""
    processes: int
    bytes: int
    """Memory that one process may count on."""

    @property
    def bf16(self) -> bool:
        """Of its oldest card; where the driver does not say, the node itself looks again before it trains."""
        return all(float(card.get("capability") or 8.0) >= 8.0 for card in self.look["cards"])

    @property
    def computes_on(self) -> str:
        if self.device == "cpu":
            return f"CPU, {self.look['cores']} cores"
        names = [card["name"].removeprefix("NVIDIA GeForce ").removeprefix("NVIDIA ") for card in self.look["cards"]]
        return " + ".join(f"{len(list(same))} × {name}" for name, same in itertools.groupby(names)).replace("1 × ", "")


def nodes_of(
    addresses: Mapping[str, str],
    looks: Mapping[str, Any],
    told: Mapping[str, Any],
    processes: Mapping[str, int],
    device: str = "auto",
) -> list[Node]:
    """Each by its name, in the cluster's order."""
    found = []
    for name, address in addresses.items():
        look = looks[name]
        cuda = device != "cpu" and bool(told[name].get("cuda")) and bool(look["cards"])
        count = int(processes.get(name) or (len(look["cards"]) if cuda else 1))
        memory = min(card["bytes"] for card in look["cards"]) if cuda else look["memory_bytes"] // count
        found.append(
            Node(
                name=name,
                address=address,
                look=look,
                device="cuda" if cuda else "cpu",
                processes=count,
                bytes=memory,
            )
        )
    return found


def gb(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"
