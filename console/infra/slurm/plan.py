"""Decides a run on somebody else's Slurm: by the same rules as at home, from what Slurm says of its nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from console import adapter_of_run, electricity, hub, launch_records, notice_address, plan_view
from console.infra import Facts
from console.infra.slurm.files import SlurmPlan, SweptRun
from console.infra.slurm.sbatch_options import of_job, refuse_short
from plugins.filter.choose_python_env import CPU, with_unsloth
from requirements.wheelhouse import lock_id
from train.errors import BadInput
from train.plan.launch.decide import Decided, decide
from train.plan.launch.extra_packages import refuse_elsewhere
from train.plan.launch.plan_for_playbook import launch_plan, prepare_words
from train.plan.machines import gpu_types
from train.plan.machines.facts import NodeFacts
from train.plan.machines.nodes import LaunchFacts
from train.plan.settings import request
from train.versions import package_hash

ROOT = Path(__file__).parents[3]


def plan(known: Facts, args: Facts) -> Facts:
    me, asked, seen = known["inventory_hostname"], args["asked"], known["motley_plan_look"]
    values, look, versions = known["hostvars"][me], seen["look"], dict(seen["versions"])
    refuse_short(of_job(known))
    brings = versions["environment"] is None and values.get("motley_python_env_manage", True) is not False
    sets = sets_of(look, values.get("motley_python_env_sets"))
    versions = with_brought(versions, sets) if brings else versions
    facts = facts_of(look, versions, asked, hub.token(values))
    facts = replace(facts, launched=launch_records.known(Path(args["state_folder"])))
    decision, sweep = plan_all(asked, facts)
    refuse_elsewhere(decision.request.config, "Slurm's nodes")
    adapter_of_run.require_base(decision)
    hub.require_data(decision.request.dataset, hub.token(values))
    runs = [one.run for one in sweep] or [decision.run]
    for run in runs:
        refuse_running(run, look, new=bool(sweep))
    lacking, old_code = ([me] if some else [] for some in (decision.lacking, decision.old_code))
    decision = replace(decision, lacking=lacking, old_code=old_code)
    common = replace(launch_plan(decision, electricity.of_plan(decision, {})), calibrate=[])
    slurm_plan = SlurmPlan.of(
        common,
        head=me,
        home=look["home"],
        sweep=sweep,
        runs=runs,
        lack_environment=brings,
        environment_sets=sets,
    )
    lines = plan_view.lines(decision, data=asked["data"])
    messages = notice_address.plan_lines("in the job's folder (0600)" if notice_address.unlocked(values) else "")
    lines = [*lines, *slurm_lines(look, sets if brings else []), *sweep_lines(sweep), *messages]
    return {"plan": slurm_plan.to_json(), "motley_lines": lines}


def plan_all(asked: dict[str, Any], facts: LaunchFacts) -> tuple[Decided, list[SweptRun]]:
    """The plan, of a sweep that of its first run; and each run of the sweep."""
    if not asked["sweep"]:
        return decide(request.read(asked["values"], hub.FETCHED), facts), []
    plans = [decide(request.read(asked["values"] | one, hub.FETCHED), facts) for one in asked["sweep"]]
    first, *others = plans
    name = str(asked["values"].get("run") or f"{first.run}-sweep")
    if any((other.model, prepare_words(other)) != (first.model, prepare_words(first)) for other in others):
        raise BadInput("sweep: its runs would need different models or rows", fix="fix: launch those one by one")
    runs = [
        SweptRun(run=f"{name}-{place}", swept=one, settings=found.settings)
        for place, (one, found) in enumerate(zip(asked["sweep"], plans, strict=True), start=1)
    ]
    return decide(request.read(asked["values"] | asked["sweep"][0] | {"run": name}, hub.FETCHED), facts), runs


def sweep_lines(sweep: list[SweptRun]) -> list[str]:
    swept = {one.run: ", ".join(f"{name} {value}" for name, value in one.swept.items()) for one in sweep}
    lines = [f"  sweep     {run}: {words}" for run, words in swept.items()]
    return [*lines, "            side by side: ./motley runs"] if lines else []


def facts_of(
    look: dict[str, Any], versions: dict[str, Any], asked: dict[str, Any], token: dict[str, str]
) -> LaunchFacts:
    names = [node["name"] for node in look["nodes"]]
    cuda, gpu_gb = bool(versions["cuda"]), asked["of_infra"].get("slurm_gpu_gb")
    return LaunchFacts(
        addresses={node["name"]: node["address"] for node in look["nodes"]},
        nodes={node["name"]: node_facts(node, look, gpu_gb, cuda=cuda) for node in look["nodes"]},
        versions=dict.fromkeys(names, versions),
        processes={node["name"]: node["processes"] for node in look["nodes"]},
        code=package_hash(ROOT / "train"),
        files=hub.Asked(token).files,
    )


def node_facts(node: dict[str, Any], look: dict[str, Any], gpu_gb: Any, *, cuda: bool) -> NodeFacts:
    """The facts of a node, as a machine at home says them of itself; what only the node itself knows stays open."""
    cards = [gpu_types.card(kind, gpu_gb) for kind in node["cards"]] if cuda else []
    of_node = {name: node[name] for name in ("cores", "memory_bytes")}
    of_cluster = {name: look[name] for name in ("home", "free_bytes", "runs")}
    return replace(NodeFacts.from_json({**of_node, **of_cluster, "route": {"nic": "–"}}), cards=cards)


def refuse_running(run: str, look: dict[str, Any], *, new: bool = False) -> None:
    if new and run in look["runs"]:
        raise BadInput(f"there is a run '{run}' already", fix="fix: another name for the sweep: --run NAME")
    if job := look["runs"].get(run, {}).get("job"):
        raise BadInput(f"run '{run}' is job {job} already", fix=f"fix: ./motley stop, or another name: --run {run}-2")


def sets_of(look: dict[str, Any], insisted: list[str] | None) -> list[str]:
    """A login node has no driver to go by: the nodes that Slurm would give decide."""
    has_cards = any(node["cards"] for node in look["nodes"])
    return list(insisted or with_unsloth("node-gpu" if has_cards else CPU))


def with_brought(versions: dict[str, Any], sets: list[str]) -> dict[str, Any]:
    """The versions as they are when the run begins."""
    lock = lock_id(str(versions["python"]), sets, machine=str(versions["machine"]))
    cuda = sets[0] if sets[0] != CPU else None
    return versions | {"environment": lock, "cuda": cuda, "unsloth": lock if "unsloth" in sets else None}


def slurm_lines(look: dict[str, Any], brought: list[str]) -> list[str]:
    """`brought`: the locked sets of an environment that is not there yet."""
    names = ", ".join(node["name"] for node in look["nodes"])
    lines = [
        f"  slurm     {len(look['nodes'])} of partition {look['partition']}: {names}; it would begin at {look['start']}"
    ]
    if brought:
        lines.append(f"  brings    the environment ({' + '.join(brought)}) to {look['home']}, once for all nodes")
    return lines
