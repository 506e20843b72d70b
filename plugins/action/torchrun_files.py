"""Renders what a node runs for a script of one's own, on the controller, and writes it by node_files in one task."""

from __future__ import annotations

import json
from typing import Any

from ansible.plugins.action import ActionBase

from console.torchrun import plan as torchrun_plan
from train.errors import BadInput


class ActionModule(ActionBase):
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        known, args = task_vars or {}, self._task.args
        node, plan = known["inventory_hostname"], dict(args["plan"])
        try:
            files = torchrun_plan.files(plan, node, dict(args.get("environment") or {}))
        except BadInput as finding:
            return result | {"failed": True, "msg": str(finding)}
        home = next(entry["home"] for entry in plan["nodes"] if entry["name"] == node)
        params = {"home": home, "files": json.dumps(files)}
        return {**result, **self._execute_module(module_name="node_files", module_args=params, task_vars=known)}
