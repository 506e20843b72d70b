"""What a node's report of a run says while somebody follows it, in played seconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


class OverError(Exception):
    pass


def views(report: Callable[[], object], module: ModuleType, for_s: float) -> list[tuple[float, dict[str, Any]]]:
    """The views that `report` of this module says, each with its second, until so long is over."""
    at_s, said = 0.0, list[tuple[float, dict[str, Any]]]()

    def sleep(seconds: float) -> None:
        nonlocal at_s
        at_s += seconds
        if at_s > for_s:
            raise OverError

    def say(kind: str, line: bytes) -> None:
        if kind == "now":
            said.append((at_s, json.loads(line)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.time, "monotonic", lambda: at_s)
        patch.setattr(module.time, "sleep", sleep)
        patch.setattr(module, "say", say)
        with pytest.raises(OverError):
            report()
    return said
