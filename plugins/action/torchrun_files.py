"""Renders what a node runs for a script of one's own, on the controller, and writes it by node_files in one task."""

from __future__ import annotations

from console import notice_address, render
from console.controller_action import Facts, OnController
from console.infra import OnNode
from console.torchrun import plan as torchrun_plan
from train.plan.launch.launch_plan import own
from train.plan.launch.torchrun import TorchrunPlan
from train.runlog.secret import Secret


class ActionModule(OnController):
    def answer(self, known: Facts, args: Facts) -> OnNode:
        node, plan = known["inventory_hostname"], TorchrunPlan.from_json(args["plan"])
        values = known["hostvars"][node]
        secret, limits = Secret(messages=notice_address.unlocked(values)), render.card_limits(values)
        files = torchrun_plan.files(plan, node, secret, limits, dict(args.get("environment") or {}))
        return OnNode("node_files", {"home": own(plan.nodes, node).home, "files": render.as_json(files)})
