"""Writes the objects of a run to one file here, and with kubectl applies them; without it, says how that is done."""

from __future__ import annotations

from pathlib import Path

from console import hub
from console.infra.kubernetes import launch
from console.infra.kubernetes import settings as asked_for
from console.infra.kubernetes.node import kubectl_of
from console.on_controller import Facts, OnController
from train.plan.launch.launch_plan import LaunchPlan


class ActionModule(OnController):
    def answer(self, known: Facts, args: Facts) -> Facts:
        values = known["hostvars"][known["inventory_hostname"]]
        plan, settings = LaunchPlan.from_json(args["plan"]), asked_for.read(values)
        cluster = launch.Cluster(kubectl_of(values))
        token = hub.token(values).get("HF_TOKEN", "")
        state, ports = Path(values["motley_state_folder"]), launch.ports(values)
        file = launch.write(plan, settings, state, args["environment"], ports, hub_token=token)
        if not cluster.is_there or not args["start"]:
            return {"changed": True, "motley_lines": launch.by_hand(plan.run, file, cluster)}
        started = launch.apply(plan.run, file, cluster)
        return {"changed": True, "started": started, "motley_say": started["note"]}
