"""Decides on the controller what each node runs for a script of one's own (train/plan/launch/torchrun.py)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from console.controller_action import Facts, OnController
from console.infra.machines.plan import facts_of, of_the_hub
from console.torchrun import plan as torchrun_plan
from train.plan.launch.torchrun import Script, decide


class ActionModule(OnController):
    def answer(self, known: Facts, args: Facts) -> Facts:
        facts = facts_of(known, args["asked"], Path(args["state_folder"]), of_the_hub(known))
        plan = decide(Script(**args["script"]), facts, int(args["port"]))
        return {"plan": asdict(plan), "motley_lines": torchrun_plan.lines(plan)}
