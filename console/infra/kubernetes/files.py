"""Writes the objects of a run to one file here, which kubectl applies; without kubectl it says how that is done."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from time import strftime
from typing import Any

import yaml

from console import hub, launch_records, notice_address, render
from console.infra import Facts
from console.infra.kubernetes import check
from console.infra.kubernetes.cluster import Cluster
from console.infra.kubernetes.node import ASIDE, kubectl_of
from console.infra.kubernetes.objects import RUN, Object, name_of, objects
from console.infra.kubernetes.settings import Settings, ports
from console.infra.kubernetes.settings import read as settings_of
from train.files import write_atomic
from train.plan.launch.launch_plan import LaunchPlan

FOLDER = "kubernetes"


def files(known: Facts, args: Facts) -> Facts:
    values, plan = known["hostvars"][known["inventory_hostname"]], LaunchPlan.from_json(args["plan"])
    file = file_of(plan.run, Path(args["state_folder"]))
    aside = {"hub_token": hub.token(values).get("HF_TOKEN", ""), "messages": notice_address.unlocked(values)}
    write(plan, settings_of(values), file, ports(values), token=args["token"], **aside)
    cluster = Cluster(kubectl_of(values))
    lines = [] if args["start"] and cluster.is_there else by_hand(plan.run, file, cluster)
    return {"changed": True, "motley_lines": lines}


def file_of(run: str, state: Path) -> Path:
    return state / FOLDER / f"{run}.yaml"


def launched_before(state: Path) -> dict[str, Any]:
    """Runs that were launched from here, as launch_info says it of a node."""
    records = launch_records.known(state / FOLDER)
    return {run: {"launched": launched, "step": 0, "done": False} for run, launched in records.items()}


def rendered(
    plan: LaunchPlan, settings: Settings, ports: Mapping[str, Any], *, time: str = "", **secret: str
) -> list[Object]:
    """`secret`: the run's token, the hub's and the address of messages, where there are such."""
    entries = objects(plan, settings, ports=ports, launch=secrets.token_hex(4), time=time, **secret)
    check.refuse(entries)
    untagged: list[Object] = json.loads(json.dumps(entries))  # what Ansible gives is tagged, and safe_dump takes none
    return untagged


def write(plan: LaunchPlan, settings: Settings, file: Path, ports: Mapping[str, Any], **secret: str) -> None:
    """It holds the run's token, so it is the user's alone."""
    now = strftime("%Y-%m-%dT%H:%M:%S%z")
    launch_records.keep([render.launched(plan, now)], file.parent)
    keep(file, plan.run, rendered(plan, settings, ports, time=now, **secret))


def keep(file: Path, run: str, entries: list[Object]) -> None:
    head = f"# Run {run} on Kubernetes, written by Motley. It holds the run's secret.\n"
    text = head + yaml.safe_dump_all(entries, sort_keys=False, allow_unicode=True)
    write_atomic(file, text.encode(), mode=0o600)


def forget_secrets(file: Path, run: str) -> None:
    """All but the run's token: the cluster has them now."""
    entries = list(yaml.safe_load_all(file.read_text()))
    for entry in entries:
        for name in ("hub-token", "messages"):
            entry.get("stringData", {}).pop(name, "")
    keep(file, run, entries)


def by_hand(run: str, file: Path, cluster: Cluster) -> list[str]:
    program, name = cluster.node.program, name_of(run)
    selector = f"-l {RUN}={name}"
    return [
        f"written   {file}",
        f"  start   {program} apply -f {file}",
        f"  watch   {program} get pods {selector}   and   {program} logs -f POD",
        f"  stop    {program} delete job {selector} --cascade=foreground   (its agents save first)",
        f"  forget  {program} delete {ASIDE} {selector}   (its tokens are there)",
    ]
