"""Renders what a node runs for a script of one's own, on the controller, and writes it by node_files in one task."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from console import notice_address, render
from console.torchrun import plan as torchrun_plan
from train.errors import BadInput
from train.plan.launch.launch_plan import own
from train.plan.launch.torchrun import TorchrunPlan
from train.runlog.launch_files import Secret


class ActionModule(ActionBase):
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        known, args = task_vars or {}, self._task.args
        node, plan = known["inventory_hostname"], TorchrunPlan.from_json(args["plan"])
        try:
            secret = Secret(messages=notice_address.unlocked(known["hostvars"][node]))
            files = torchrun_plan.files(plan, node, secret, dict(args.get("environment") or {}))
        except BadInput as finding:
            return result | {"failed": True, "msg": str(finding)}
        params = {"home": own(plan.nodes, node).home, "files": render.as_json(files)}
        return {**result, **self._execute_module(module_name="node_files", module_args=params, task_vars=known)}
