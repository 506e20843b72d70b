"""The box answers as a folder of this machine does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console.infra.machines.node import LocalNode
from console.infra.node import Node


def node(name: str, values: Mapping[str, Any], state: str) -> Node:
    return LocalNode(name=name, home=f"{state}/box")
