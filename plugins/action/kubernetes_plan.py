"""Decides a run on somebody else's Kubernetes: by the same rules as at home, from what its pods are to get."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from console import electricity, hub, plan_view
from console.infra.kubernetes import facts, launch
from console.infra.kubernetes import settings as asked_for
from console.infra.kubernetes.node import kubectl_of
from console.on_controller import Facts, OnController
from plugins.action.launch_plan import told
from train.plan.launch.decide import decide
from train.plan.launch.plan import launch_plan
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
        found = replace(found, lacking=[], old_code=[])
        plan = launch_plan(found, electricity.of_plan(found, {}))
        cluster, ports = launch.Cluster(kubectl_of(values)), launch.ports(values)
        said = launch.try_out(plan, settings, cluster, args["environment"], ports)
        return told(args, plan, [*plan_view.lines(found, data=args["asked"]["data"]), *said])
