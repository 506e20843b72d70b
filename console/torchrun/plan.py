"""A script of one's own over the cluster: what a person sees of its plan, and the files that each node runs by."""

from __future__ import annotations

from typing import Any

from console import render
from console.words import counted, drawn
from train.plan.launch.torchrun import NOT_GIVEN
from train.runlog import paths


def lines(plan: dict[str, Any]) -> list[str]:
    count = sum(node["processes"] for node in plan["nodes"])
    size = sum(facts["size"] for facts in plan["files"].values())
    table = [("node", "computes on", "network", "processes")]
    first = 0
    for node in plan["nodes"]:
        last = first + node["processes"] - 1
        ranks = f"rank {first}" if first == last else f"ranks {first}–{last}"
        table.append((node["name"], node["computes_on"], node["interface"], f"{node['processes']}: {ranks}"))
        first = last + 1
    files = f"{counted(len(plan['files']), 'file')}, {size / 1e3:.0f} kB, to {plan['folder']}"
    rows = [
        ("script", f"{plan['source']}: {files}" if plan["files"] else "a module that the nodes have"),
        ("torchrun", " ".join(f"--{word}" for word in static(plan))),
        ("it lacks", f"what Motley's own training has: {NOT_GIVEN} (docs/training.md)"),
    ]
    where = f"{count} processes on {len(plan['nodes'])} nodes, by plain torchrun"
    return [
        f"plan  {plan['run']} · {plan['script']} · {where}",
        *drawn(table),
        *(f"  {word:<9} {text}" for word, text in rows),
        *(f"  ⚠ {warning}" for warning in plan["warnings"]),
    ]


def static(plan: dict[str, Any]) -> list[str]:
    """What is the same on every node."""
    words = [word.removeprefix("--") for word in plan["nodes"][0]["words"][:6]]
    return [word for word in words if word.partition("=")[0] in ("nnodes", "master-addr", "master-port")]


def files(plan: dict[str, Any], node: str, more: dict[str, Any]) -> list[dict[str, Any]]:
    """Path, content and mode of each file of one node: as a launch has them, with another last line."""
    own = next(entry for entry in plan["nodes"] if entry["name"] == node)
    words = ["--run", plan["run"], "--folder", plan["folder"] or ".", "--", *own["words"]]
    script = render.launch_script(plan, node, more, command=["env/bin/python", "-m", "train", "torchrun", *words])
    about = [
        f"# Who runs {plan['run']}; written by Motley. What each node runs: scripts/launch_cluster.sh",
        f"run: {render.as_yaml(plan['run'])}",
        f"node: {render.as_yaml(node)}",
        f"script: {render.as_yaml(plan['script'])}",
        f"interface: {render.as_yaml(own['interface'])}",
        "nodes:",
        *(
            f"  - {{name: {render.as_yaml(entry['name'])}, address: {render.as_yaml(entry['address'])}, "
            f"processes: {entry['processes']}}}"
            for entry in plan["nodes"]
        ),
    ]
    return [script, {"path": paths.CLUSTER, "content": "\n".join(about) + "\n", "mode": 0o600}]
