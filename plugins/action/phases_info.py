"""Runs the module of this name, and tries on the controller whether its own key opens the node."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from plugins.module_utils.motley.logins import opens


class ActionModule(ActionBase):
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        known = task_vars or {}
        result: dict[str, Any] = super().run(tmp, known)
        args = dict(self._task.args)
        node = args.pop("node")
        state_folder = args.pop("state_folder")
        result |= self._execute_module(module_args=args, task_vars=known)
        if "ssh_trust" in result.get("would", {}):
            if opens(["-o", "IdentitiesOnly=yes"], node, state_folder):
                result["proven"]["ssh_trust"].append("the controller reaches every node by key")
            else:
                result["would"]["ssh_trust"] = "the controller's key does not open it"
        return result
