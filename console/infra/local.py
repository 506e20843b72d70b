"""A node that is a folder of this machine (inventory/loopback): no login, no unit, no root."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from console.infra.node import Node


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalNode(Node):
    python: ClassVar[str] = sys.executable

    def command(self, words: Sequence[str]) -> list[str]:
        return list(words)
