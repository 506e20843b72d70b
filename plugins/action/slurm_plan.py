"""Decides a run on somebody else's Slurm: by the same rules as at home, from what Slurm says of its nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from console import electricity, hub, plan_view
from train.errors import BadInput
from train.package import package_hash
from train.plan import gpu_types, plan, request
from train.plan.decide import decide
from train.plan.nodes import LaunchFacts

ROOT = Path(__file__).parents[2]


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        known, args = task_vars or {}, self._task.args
        me, look, asked = known["inventory_hostname"], args["look"], args["asked"]
        versions = dict(args["versions"])
        brings = versions["environment"] is None and known.get("motley_python_env_manage", True) is not False
        try:
            facts = facts_of(look, versions, asked, hub.token(known["hostvars"][me]))
            found = decide(request.read(asked["values"], hub.FETCHED), facts)
            refuse_running(found.run, look)
        except BadInput as finding:
            return result | {"failed": True, "msg": str(finding)}
        found.lacking, found.old_code = ([me] if some else [] for some in (found.lacking, found.old_code))
        data = plan.as_data(found) | {
            **{"electricity": electricity.of_plan(found, {}), "head": me, "home": look["home"]},
            **{"runs": [found.run], "lack_environment": brings},
        }
        if args.get("tell_in"):
            Path(args["tell_in"]).write_text(json.dumps(data))
        lines = [*plan_view.lines(found), *slurm_lines(look)]
        return result | {"changed": False, "plan": data, "motley_lines": lines}


def facts_of(
    look: dict[str, Any], versions: dict[str, Any], asked: dict[str, Any], token: dict[str, str]
) -> LaunchFacts:
    names = [node["name"] for node in look["nodes"]]
    cuda = bool(versions["cuda"])
    return LaunchFacts(
        addresses={node["name"]: node["address"] for node in look["nodes"]},
        looks={node["name"]: look_of(node, look, asked["slurm_gpu_gb"], cuda=cuda) for node in look["nodes"]},
        versions=dict.fromkeys(names, versions),
        processes={node["name"]: node["processes"] for node in look["nodes"]},
        code=package_hash(ROOT / "train"),
        files=lambda model: hub.files(model, token),
    )


def look_of(node: dict[str, Any], look: dict[str, Any], gpu_gb: Any, *, cuda: bool) -> dict[str, Any]:
    """As a machine at home says it of itself; what only the node itself knows stays open."""
    cards = [gpu_types.card(kind, gpu_gb) for kind in node["cards"]] if cuda else []
    return {
        **{name: node[name] for name in ("cores", "memory_bytes")},
        **{name: look[name] for name in ("home", "free_bytes", "runs")},
        **{"cards": cards, "run_on": "", "port_taken": 0, "measured": [], "missed": []},
        "route": {"why": "", "nic": "–", "mbit": 0, "wireless": False},
    }


def refuse_running(run: str, look: dict[str, Any]) -> None:
    if job := look["runs"].get(run, {}).get("job"):
        raise BadInput(f"run '{run}' is job {job} already", fix=f"fix: make stop, or another name: -e run={run}-2")


def slurm_lines(look: dict[str, Any]) -> list[str]:
    where = (
        f"{len(look['nodes'])} of partition {look['partition']}: {', '.join(node['name'] for node in look['nodes'])}"
    )
    return [f"  slurm     {where}; it would begin at {look['start']}"]
