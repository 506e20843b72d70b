"""Renders what a job of Slurm runs by, here on the controller, and writes it by node_files in one task."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from console import launched, render
from console.infra.slurm import job_files
from console.infra.slurm.job_files import SlurmPlan
from train.errors import BadInput


class ActionModule(ActionBase):
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = self._task.args
        plan, now = SlurmPlan.from_json(args["plan"]), time.strftime("%Y-%m-%dT%H:%M:%S%z")
        try:
            files = job_files.files(plan, list(args["options"]), args.get("environment") or {}, now)
            launched.keep(files, Path(args["state_folder"]))
        except BadInput as finding:
            return result | {"failed": True, "msg": str(finding)}
        params = {
            "home": plan.home,
            "files": render.as_json(files),
            "aside": [f"jobs/{run}" for run in plan.runs] if plan.anew else [],
            "aside_as": f".before-{time.strftime('%Y%m%d-%H%M%S')}",
        }
        return {**result, **self._execute_module(module_name="node_files", module_args=params, task_vars=task_vars)}
