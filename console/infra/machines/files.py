"""Renders what each machine runs by, from the plan: its own files, for its own folder."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from console import launch_records, notice_address, render
from console.infra import Facts, OnNode
from train.plan.launch.launch_plan import LaunchPlan, own
from train.runlog import paths
from train.runlog.queue_order import launch_of
from train.runlog.secret import Secret


def files(known: Facts, args: Facts) -> OnNode:
    node = known["inventory_hostname"]
    values = known["hostvars"][node]
    plan, now = LaunchPlan.from_json(args["plan"]), time.strftime("%Y-%m-%dT%H:%M:%S%z")
    aside = render.aside_of(values, float(args.get("not_before") or 0), args.get("then") or "")
    more, limits = dict(args.get("environment") or {}), render.card_limits(values)
    secret = Secret(token=args["token"], messages=notice_address.unlocked(values))
    rendered = render.files(plan, node, secret, dict(args["ports"]), more, time=now, aside=aside, limits=limits)
    launch_records.keep(rendered, Path(args["state_folder"]))
    waits = bool(args.get("queue")) and bool(args.get("start", True))
    rendered = [in_queue(file, plan.run) for file in rendered] if waits else rendered
    folders = [f"{place}/{plan.run}" for place in ("models/checkpoints", "logs/runs", "results")]
    params = {
        "home": own(plan.nodes, node).home,
        "files": render.as_json(rendered),
        "aside": folders if node in plan.older_on else [],
    }
    return OnNode("node_files", params, beside={"launch": launch_of(args["token"])})


def in_queue(file: render.File, run: str) -> render.File:
    """What a node runs by gets its place when the run's turn comes; the run's own record has it now."""
    return file if Path(file.path).name == paths.LAUNCH else replace(file, path=f"{paths.QUEUE}/{run}/{file.path}")
