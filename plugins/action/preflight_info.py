"""Runs the module of this name, and says how far the node's clock is off."""

from __future__ import annotations

from typing import Any

from console.controller_action import Clocked


class ActionModule(Clocked):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        fine = False
        try:
            result = super().run(tmp, task_vars)
            fine = not result.get("failed")
        finally:
            if not fine:  # a login keeps its groups: whoever is let into one since must log in again
                self._connection.reset()
        return result
