"""Decides a run on somebody else's Kubernetes: by the same rules as at home, from what its pods are to get."""

from __future__ import annotations

from pathlib import Path

from console import electricity, hub, plan_view
from console.infra.kubernetes import facts, launch
from console.infra.kubernetes import settings as asked_for
from console.infra.kubernetes.node import kubectl_of
from console.on_controller import Facts, OnController
from plugins.action.launch_plan import told
from train.plan.launch import plan
from train.plan.launch.decide import decide
from train.plan.settings import request


class ActionModule(OnController):
    def answer(self, known: Facts, args: Facts) -> Facts:
        values = known["hostvars"][known["inventory_hostname"]]
        state = Path(values["motley_state_folder"])
        settings, token = asked_for.read(values), hub.token(values)
        wanted = request.read(args["asked"]["values"], hub.FETCHED)
        name = wanted.config.run if wanted.given.get("run") else ""
        found = decide(wanted, facts.of(settings, name, token, launch.known(state)))
        if not name:  # the pods' names are made of the run's
            found = decide(wanted, facts.of(settings, found.run, token, launch.known(state)))
        found.lacking, found.old_code = [], []
        data = plan.as_data(found) | {"electricity": electricity.of_plan(found, {})}
        data["ports"] = launch.ports(values)
        data["dataset"]["folder_name"] = ""  # known when a pod has made the rows
        said = launch.try_out(data, settings, launch.Cluster(kubectl_of(values)), args["environment"])
        return told(args, data, [*plan_view.lines(found, data=args["asked"]["data"]), *said])
