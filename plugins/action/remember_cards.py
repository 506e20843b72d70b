"""Keeps on the controller which network card leads to each node: a machine that is off tells nobody (./motley wake)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from console import wake


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        known = task_vars or {}
        found = {name: wake.card_of(known["hostvars"][name]) for name in known["ansible_play_hosts"]}
        if not self._task.check_mode:
            wake.remember(Path(str(self._task.args["state_folder"])), found)
        return result | {"changed": False}
