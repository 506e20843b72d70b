"""Decides a run, as the infra of the host does it (console/infra/NAME/plan.py)."""

from __future__ import annotations

from console import run_file
from console.controller_action import OnController
from console.infra import Facts, about, name_of, part


class ActionModule(OnController):
    def answer(self, known: Facts, args: Facts) -> Facts:
        """The plan for the tasks behind it, and for ./motley plan --json."""
        infra = name_of(known["hostvars"][known["inventory_hostname"]])
        answer: Facts = part(infra, "plan")(known, args)
        asked = run_file.as_variables(args["asked"], answer["plan"].get("given", {}))
        plan = answer["plan"] | {"examples": args["asked"]["data"], "asked": asked}
        return answer | {"plan": plan, "brings": not about(infra).fetches}
