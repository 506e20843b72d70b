"""Applies the objects of a run that have been written down."""

from __future__ import annotations

import time
from pathlib import Path

from console.infra import Facts
from console.infra.kubernetes.cluster import Cluster
from console.infra.kubernetes.files import file_of, forget_secrets
from console.infra.kubernetes.node import STOP_S, kubectl_of
from console.infra.kubernetes.objects import name_of
from plugins.module_utils.motley.node_replies import Started
from train.errors import BadInput


def start(known: Facts, args: Facts) -> Facts:
    values = known["hostvars"][known["inventory_hostname"]]
    cluster = Cluster(kubectl_of(values))
    if not cluster.is_there:
        return {}
    started = apply(args["run"], file_of(args["run"], Path(values["motley_state_folder"])), cluster)
    return {"changed": True, "started": started, "motley_say": started["note"]}


def clear(run: str, cluster: Cluster) -> None:
    """Take away the Jobs of this run that are over, and wait for their pods."""
    jobs = (name_of(run), f"{name_of(run)}-prepare")
    try:
        cluster.kube("delete", "job", *jobs, "--ignore-not-found", "--cascade=foreground", timeout_s=STOP_S)
    except BadInput:
        cluster.refuse_lost(run)  # by now it shows whether one is
        raise


def apply(run: str, file: Path, cluster: Cluster) -> Started:
    began, name = time.time(), name_of(run)
    cluster.refuse_lost(run)
    clear(run, cluster)
    cluster.kube("apply", "-f", str(file))
    forget_secrets(file, run)
    watch = f"{cluster.node.program} get pods"
    note = f"job {name}: it runs when Kubernetes has the machines, also when nobody watches ({watch})"
    return {"run": run, "pid": 0, "how": "kubernetes", "time": began, "up": time.time(), "note": note}
