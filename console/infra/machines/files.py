"""Renders what each machine runs by, from the plan: its own files, for its own folder."""

from __future__ import annotations

import time
from pathlib import Path

from console import launch_records, notice_address, render
from console.infra import Facts, OnNode
from train.plan.launch.launch_plan import LaunchPlan, own
from train.runlog import paths


def files(known: Facts, args: Facts) -> OnNode:
    node = known["inventory_hostname"]
    values = known["hostvars"][node]
    plan, now = LaunchPlan.from_json(args["plan"]), time.strftime("%Y-%m-%dT%H:%M:%S%z")
    aside = render.aside_of(values, float(args.get("not_before") or 0), args.get("then") or "")
    more = dict(args.get("environment") or {})
    made = render.files(plan, node, args["token"], dict(args["ports"]), more, time=now, aside=aside)
    launch_records.keep(made, Path(args["state_folder"]))
    made += (messages := notice_address.file_of(values))
    if limits := render.card_limits(values):
        made.append(render.File(paths.LIMITS, limits, 0o644))
    folders = [f"{place}/{plan.run}" for place in ("models/checkpoints", "logs/runs", "results")]
    params = {
        "home": own(plan.nodes, node).home,
        "files": render.as_json(made),
        "absent": [name for name, is_set in ((paths.NOTIFY, messages), (paths.LIMITS, limits)) if not is_set],
        "aside": folders if plan.from_start else [],
        "aside_as": f".before-{time.strftime('%Y%m%d-%H%M%S')}",
    }
    return OnNode("node_files", params)
