"""Decides a run by the same rules as at home, from what its pods are to get, and tries it out on the API server."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from console import electricity, hub, notice_address, plan_view
from console.infra import Facts
from console.infra.kubernetes import look
from console.infra.kubernetes.cluster import Cluster
from console.infra.kubernetes.files import launched_before, rendered
from console.infra.kubernetes.node import kubectl_of
from console.infra.kubernetes.objects import Object
from console.infra.kubernetes.settings import Settings, ports
from console.infra.kubernetes.settings import read as settings_of
from console.infra.kubernetes.shown import is_active
from train.errors import BadInput
from train.plan.launch.decide import decide
from train.plan.launch.extra_packages import refuse_elsewhere
from train.plan.launch.launch_plan import LaunchPlan
from train.plan.launch.plan_for_playbook import launch_plan
from train.plan.settings import request


def plan(known: Facts, args: Facts) -> Facts:
    values, asked = known["hostvars"][known["inventory_hostname"]], args["asked"]
    settings, hub_asked = settings_of(values), hub.Asked(hub.token(values))
    before = launched_before(Path(args["state_folder"]))
    wanted = request.read(asked["values"], hub.FETCHED)
    refuse_elsewhere(wanted.config, "pods")
    name = wanted.config.run if wanted.given.get("run") else ""
    decision = decide(wanted, look.facts_of(settings, name, hub_asked, before))
    if not name:  # the pods' names are made of the run's
        decision = decide(wanted, look.facts_of(settings, decision.run, hub_asked, before))
    decision = replace(decision, lacking=[], old_code=[])
    launch = replace(launch_plan(decision, electricity.of_plan(decision, {})), calibrate=[])
    messages = notice_address.plan_lines("in the run's Secret" if notice_address.unlocked(values) else "")
    cluster_lines = try_out(launch, settings, Cluster(kubectl_of(values)), ports(values))
    return {
        "plan": launch.to_json(),
        "motley_lines": [*plan_view.lines(decision, data=asked["data"]), *cluster_lines, *messages],
    }


def try_out(plan: LaunchPlan, settings: Settings, cluster: Cluster, ports: Mapping[str, Any]) -> list[str]:
    """What the plan says of the cluster; BadInput where it would refuse something."""
    entries = rendered(plan, settings, ports, token="tried-out")  # noqa: S106  it is applied to nothing
    where = f"{settings.pods} pods, {settings.gpus or 'no'} card each; {home_words(settings)}"
    if not cluster.is_there:
        return [
            f"  pods      {where}",
            "            no kubectl here that leads to a cluster: only names and limits were checked",
        ]
    job = cluster.job(plan.run)
    if job and is_active(job):
        raise BadInput(f"run '{plan.run}' is a Job there already", fix="fix: ./motley stop --infra kubernetes")
    cluster.refuse_lost(plan.run)
    if job:  # an ended one is replaced, so the new one is tried under another name
        entries = copy.deepcopy(entries)
        for entry in entries:
            if entry["kind"] == "Job":
                entry["metadata"]["name"] = f"{entry['metadata']['name'][:50]}-again"
    entries += [pod_of(entry) for entry in entries if entry["kind"] == "Job"]
    cluster.kube("apply", "--dry-run=server", "-f", "-", given=yaml.safe_dump_all(entries, sort_keys=False))
    return [f"  pods      {where}", "            the API server would take them (kubectl apply --dry-run=server)"]


def pod_of(job: Object) -> Object:
    """What a quota and pod security judge: of a Job itself they say nothing."""
    template, meta = job["spec"]["template"], job["metadata"]
    name = {"name": f"{meta['name']}-tried"} | {key: meta[key] for key in ("namespace",) if key in meta}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], **name}, "spec": template["spec"]}


def home_words(settings: Settings) -> str:
    if settings.host_path:
        return f"files below {settings.host_path} of each machine"
    return f"files on the volume {settings.volume_claim}"
