"""`./motley torchrun train.py`: a training script that knows nothing of Motley, over all nodes, and what it prints.

The playbook up to the start, as with launch; then console/torchrun/script_view.py shows it, as follow does.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from console import launch_playbook
from console.infra.node import from_inventory
from console.inventory.read import Inventory
from console.torchrun import request as torchrun_request
from console.torchrun import script_view


def torchrun(
    inventory: Inventory, *, words: list[str], script: str, module: str, run: str, limit: list[str], verbose: bool
) -> int:
    asked = torchrun_request.read([*torchrun_request.split(script), *words], module=module, run=run)
    extra = json.dumps({"motley_plan_script": asdict(asked)})
    flags = [*(["--limit", ",".join(limit)] if limit else []), *(["-v"] if verbose else [])]
    started = launch_playbook.started_by(inventory, "playbooks/torchrun.yml", [*flags, "-e", extra])
    if isinstance(started, int):
        return started
    nodes = [node for node in from_inventory(inventory) if node.name in started["nodes"]]
    return script_view.show(nodes, script_view.ScriptView(started["run"], started["since"]))
