"""A script of one's own over the cluster: what a person sees of its plan, and the files that each node runs by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console import render
from console.render import File
from console.text_layout import counted, drawn
from train.plan.launch.launch_plan import own
from train.plan.launch.torchrun import NOT_GIVEN, TorchrunPlan
from train.runlog import paths
from train.runlog.secret import Secret


def lines(plan: TorchrunPlan) -> list[str]:
    count = sum(node.processes for node in plan.nodes)
    size = sum(facts["size"] for facts in plan.files.values())
    table = [("node", "computes on", "network", "processes")]
    first = 0
    for node in plan.nodes:
        last = first + node.processes - 1
        ranks = f"rank {first}" if first == last else f"ranks {first}–{last}"
        table.append((node.name, node.computes_on, str(node.interface), f"{node.processes}: {ranks}"))
        first = last + 1
    files = f"{counted(len(plan.files), 'file')}, {size / 1e3:.0f} kB, to {plan.folder}"
    rows = [
        ("script", f"{plan.source}: {files}" if plan.files else "a module that the nodes have"),
        ("torchrun", " ".join(f"--{word}" for word in static(plan))),
        ("it lacks", f"what Motley's own training has: {NOT_GIVEN} (docs/training.md)"),
    ]
    where = f"{count} processes on {len(plan.nodes)} nodes, by plain torchrun"
    return [
        f"plan  {plan.run} · {plan.script} · {where}",
        *drawn(table),
        *(f"  {word:<9} {text}" for word, text in rows),
        *(f"  ⚠ {warning}" for warning in plan.warnings),
    ]


def static(plan: TorchrunPlan) -> list[str]:
    """What is the same on every node."""
    words = [word.removeprefix("--") for word in plan.nodes[0].words[:6]]
    return [word for word in words if word.partition("=")[0] in ("nnodes", "master-addr", "master-port")]


def files(
    plan: TorchrunPlan, node: str, secret: Secret, limits: Mapping[str, int], more: Mapping[str, Any]
) -> list[File]:
    """The files that a launch has too, with another last line of the script."""
    here = own(plan.nodes, node)
    words = ["--run", plan.run, "--folder", plan.folder or ".", "--", *here.words]
    command = ["env/bin/python", "-m", "train", "torchrun", *words]
    return [
        render.launch_script(plan.run, here, plan.nodes, more, command=command),
        File(paths.CLUSTER, render.cluster_of(plan, here, {"limits": limits}).to_text(), 0o644),
        render.secret_file(secret),
    ]
