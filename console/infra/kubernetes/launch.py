"""A launch on Kubernetes: tried out on its API server, written to one file, applied. Without kubectl, written."""

from __future__ import annotations

import copy
import json
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from console.infra.kubernetes import check, kubectl
from console.infra.kubernetes.node import ASIDE, STOP_S, KubernetesNode
from console.infra.kubernetes.objects import RUN, Object, name_of, objects
from console.infra.kubernetes.settings import Settings
from console.infra.kubernetes.shown import is_active
from console.infra.node import Silent
from train.errors import BadInput
from train.files import write_atomic
from train.layout import GROUP_PORTS, HEARTBEAT_PORT
from train.plan.launch.launch_plan import LaunchPlan

FOLDER = "kubernetes"
APPLY_S = 60.0


class Cluster:
    """The API server that kubectl leads to, if there is one."""

    def __init__(self, kubectl: tuple[str, ...]) -> None:
        self.kubectl = kubectl
        self.node = KubernetesNode(name="kubernetes", home="", kubectl=kubectl)

    @property
    def is_there(self) -> bool:
        """A kubectl that leads nowhere is as good as none."""
        if shutil.which(self.kubectl[0]) is None:
            return False
        if len(self.kubectl) > 1 or "KUBERNETES_SERVICE_HOST" in os.environ:
            return True
        try:
            return bool(self.node.kube("config", "current-context").strip())
        except Silent:
            return False

    def kube(self, *words: str, given: str = "", timeout_s: float = APPLY_S) -> str:
        try:
            return self.node.kube(*words, given=given, timeout_s=timeout_s)
        except Silent as why:
            raise self.refused(why, *([] if given else words)) from None

    def refused(self, why: Silent, *words: str) -> BadInput:
        command = [*self.kubectl, *words] if words else []
        return BadInput(f"kubectl: {why}", fix=kubectl.fix(str(why), command, self.kubectl))

    def job(self, run: str) -> Object | None:
        try:
            return self.node.jobs().get(run)
        except Silent as why:
            raise self.refused(why) from None

    def refuse_lost(self, run: str) -> None:
        """A pod of a machine that is gone keeps its Job from being deleted."""
        try:
            words = self.node.lost(self.node.listed("pods", f"{RUN}={name_of(run)}"))
        except Silent as why:
            raise self.refused(why) from None
        if words:
            raise BadInput(f"run '{run}' has pods there that cannot end", fix=f"fix: {words}")


def ports(values: Mapping[str, Any]) -> dict[str, Any]:
    first, last = values.get("motley_render_group_ports") or GROUP_PORTS
    heartbeat = values.get("motley_render_presence_port") or HEARTBEAT_PORT
    return {"presence_port": int(heartbeat), "group_ports": [int(first), int(last)]}


def known(state: Path) -> dict[str, Any]:
    """Runs that were launched from here, as launch_info says it of a node."""
    found = {}
    for file in sorted((state / FOLDER).glob("*.yaml")):
        for entry in yaml.safe_load_all(file.read_text()):
            if entry["kind"] == "ConfigMap":
                launched = json.loads(entry["data"]["launch.json"])
                found[launched["run"]] = {"launched": launched, "step": 0, "done": False}
    return found


def rendered(
    plan: LaunchPlan,
    settings: Settings,
    environment: Mapping[str, Any],
    ports: Mapping[str, Any],
    *,
    token: str,
    hub_token: str = "",
    time: str = "",
) -> list[Object]:
    one = {"token": token, "hub_token": hub_token, "launch": secrets.token_hex(4), "time": time}
    made = objects(plan, settings, ports=ports, environment=environment, **one)
    check.refuse(made)
    plain: list[Object] = json.loads(json.dumps(made))  # what Ansible gives is tagged, and safe_dump takes none
    return plain


def try_out(
    plan: LaunchPlan, settings: Settings, cluster: Cluster, environment: Mapping[str, Any], ports: Mapping[str, Any]
) -> list[str]:
    """What the plan says of the cluster; BadInput where it would refuse something."""
    made = rendered(plan, settings, environment, ports, token="tried-out")  # noqa: S106  it is applied to nothing
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
        made = copy.deepcopy(made)
        for one in made:
            if one["kind"] == "Job":
                one["metadata"]["name"] = f"{one['metadata']['name'][:50]}-again"
    made += [pod_of(one) for one in made if one["kind"] == "Job"]
    cluster.kube("apply", "--dry-run=server", "-f", "-", given=yaml.safe_dump_all(made, sort_keys=False))
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


def write(
    plan: LaunchPlan,
    settings: Settings,
    state: Path,
    environment: Mapping[str, Any],
    ports: Mapping[str, Any],
    *,
    hub_token: str,
) -> Path:
    """It holds the run's token, so it is the user's alone."""
    own = {"token": secrets.token_hex(16), "hub_token": hub_token, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    made = rendered(plan, settings, environment, ports, **own)
    file = state / FOLDER / f"{plan.run}.yaml"
    keep(file, plan.run, made)
    return file


def keep(file: Path, run: str, made: list[Object]) -> None:
    head = f"# Run {run} on Kubernetes, written by Motley. It holds the run's secret.\n"
    text = head + yaml.safe_dump_all(made, sort_keys=False, allow_unicode=True)
    write_atomic(file, text.encode(), mode=0o600)


def forget_hub_token(file: Path, run: str) -> None:
    """The cluster has it now."""
    made = list(yaml.safe_load_all(file.read_text()))
    if any(one.get("stringData", {}).pop("hub-token", "") for one in made):
        keep(file, run, made)


def clear(run: str, cluster: Cluster) -> None:
    """Take away the Jobs of this run that are over, and wait for their pods."""
    jobs = (name_of(run), f"{name_of(run)}-prepare")
    try:
        cluster.kube("delete", "job", *jobs, "--ignore-not-found", "--cascade=foreground", timeout_s=STOP_S)
    except BadInput:
        cluster.refuse_lost(run)  # by now it shows whether one is
        raise


def apply(run: str, file: Path, cluster: Cluster) -> dict[str, Any]:
    began, name = time.time(), name_of(run)
    cluster.refuse_lost(run)
    clear(run, cluster)
    cluster.kube("apply", "-f", str(file))
    forget_hub_token(file, run)
    watch = f"{cluster.node.program} get pods"
    note = f"job {name}: it runs when Kubernetes has the machines, also when nobody watches ({watch})"
    return {"run": run, "pid": 0, "how": "kubernetes", "time": began, "up": time.time(), "note": note}


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
