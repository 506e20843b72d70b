"""Renders a node's own files from the plan, here on the controller, and writes them by node_files in one task."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from console import launched, notify, render
from train.errors import BadInput
from train.plan.launch.launch_plan import LaunchPlan, own
from train.runlog import paths


class ActionModule(ActionBase):
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        known, args = task_vars or {}, self._task.args
        node = known["inventory_hostname"]
        plan, now = LaunchPlan.from_json(args["plan"]), time.strftime("%Y-%m-%dT%H:%M:%S%z")
        run = plan.run
        folders = [f"models/checkpoints/{run}", f"logs/runs/{run}", f"results/{run}"]
        try:
            aside = render.aside_of(known["hostvars"][node], float(args.get("not_before") or 0), args.get("then") or "")
            more = dict(args.get("environment") or {})
            files = render.files(plan, node, args["token"], dict(args["ports"]), more, time=now, aside=aside)
            launched.keep(files, Path(args["state_folder"]))
            address = notify.for_node(known["hostvars"][node])
        except BadInput as finding:
            return result | {"failed": True, "msg": str(finding)}
        if address:
            files.append(render.File(paths.NOTIFY, f"{address}\n", 0o600))
        limits = render.card_limits(known["hostvars"][node])
        if limits:
            files.append(render.File(paths.LIMITS, limits, 0o644))
        params = {
            "home": own(plan.nodes, node).home,
            "files": render.as_json(files),
            "absent": [name for name, is_set in ((paths.NOTIFY, address), (paths.LIMITS, limits)) if not is_set],
            "aside": folders if plan.anew else [],
            "aside_as": f".before-{time.strftime('%Y%m%d-%H%M%S')}",
        }
        return {**result, **self._execute_module(module_name="node_files", module_args=params, task_vars=known)}
