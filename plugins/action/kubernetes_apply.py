"""Writes the objects of a run to one file here, and with kubectl applies them; without it, says how that is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from console import hub
from console import kubernetes_launch as launch
from console.infra.kubernetes import kubectl_of
from console.kubernetes import settings as asked_for
from train.errors import BadInput


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        known, args = task_vars or {}, self._task.args
        values = known["hostvars"][known["inventory_hostname"]]
        plan, settings = dict(args["plan"]), asked_for.read(values)
        cluster = launch.Cluster(kubectl_of(values))
        try:
            token = hub.token(values).get("HF_TOKEN", "")
            file = launch.write(plan, settings, Path(values["motley_state_folder"]), args["environment"], token)
            if not cluster.is_there or not args["start"]:
                return result | {"changed": True, "motley_lines": launch.by_hand(plan["run"], file, cluster)}
            started = launch.apply(plan["run"], file, cluster)
        except BadInput as finding:
            return result | {"failed": True, "msg": str(finding)}
        return result | {"changed": True, "started": started, "motley_say": started["note"]}
