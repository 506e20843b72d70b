"""Decides on the controller what each node runs for a script of one's own (train/plan/torchrun.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from console import torchrun_plan
from plugins.action.launch_plan import facts_of
from train.errors import BadInput
from train.plan.torchrun import Script, decide


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        known, args = task_vars or {}, self._task.args
        try:
            facts = facts_of(known, args["asked"], Path(args["state_folder"]))
            plan = decide(Script(**args["script"]), facts, int(args["port"]))
        except BadInput as finding:
            return result | {"failed": True, "msg": str(finding)}
        return result | {"changed": False, "plan": plan, "motley_lines": torchrun_plan.lines(plan)}
