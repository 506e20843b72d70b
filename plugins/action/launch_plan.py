"""Decides a run, as the infra of the host does it (console/infra/NAME/plan.py)."""

from __future__ import annotations

from console import run_file
from console.controller_action import InfraStep
from console.infra import Facts, infra_of


class ActionModule(InfraStep):
    step = "plan"

    def answer(self, known: Facts, args: Facts) -> Facts:
        """The plan for the tasks behind it, and for ./motley plan --json."""
        answer = super().answer(known, args)
        asked = run_file.asked_for(args["asked"], answer["plan"].get("given", {}))
        plan = answer["plan"] | {"examples": args["asked"]["data"], "asked": asked}
        brings = not infra_of(known["hostvars"][known["inventory_hostname"]]).fetches
        return answer | {"plan": plan, "brings": brings}
