"""The nodes of an inventory, each by its infra."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.infra import name_of, part
from console.infra.node import Node

if TYPE_CHECKING:
    from console.inventory.read import Inventory


def from_inventory(inventory: Inventory) -> list[Node]:
    state = str(inventory.state.resolve())
    return [_node(name, values, state) for name, values in inventory.nodes.items()]


def from_hostvars(names: Iterable[str], hostvars: Any) -> list[Node]:
    """Inside Ansible, which has already replaced every template."""
    return [_node(name, hostvars[name], str(Path(hostvars[name]["motley_state_folder"]).resolve())) for name in names]


def _node(name: str, values: Mapping[str, Any], state: str) -> Node:
    found: Node = part(name_of(values), "node")(name, values, state)
    return found
