"""Decides how many steps the program makes. A real infra gives LaunchFacts to train/plan/launch/decide.py."""

from __future__ import annotations

from console.infra import Facts


def plan(known: Facts, args: Facts) -> Facts:
    steps = known["hostvars"][known["inventory_hostname"]].get("motley_box_steps", 3)
    home = known["motley_plan_look"]["look"]["home"]
    run = args["asked"]["values"].get("run", "boxed")
    found = {"run": run, "steps": steps, "home": home, "dataset": {}}
    return {"plan": found, "motley_lines": [f"plan  {run} in {home}"]}
