"""The home of a node that a job makes for itself: its own files, and links to what all nodes of the job read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Required, TypedDict

from train.files import write_atomic
from train.runlog import paths

CACHES = {
    "HF_HOME": "huggingface",
    "UNSLOTH_COMPILE_LOCATION": "unsloth",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
}


class NodeData(TypedDict):
    name: str
    address: str
    processes: int


class ClusterData(TypedDict, total=False):
    """A node's cluster_config.yaml, as it is written here (train/plan/launch/cluster_config.py reads it)."""

    run: Required[str]
    node: str
    token: str
    nodes: Sequence[NodeData]
    interface: str
    presence_port: int
    group_ports: Sequence[int]
    pipe: Mapping[str, object]


def furnish(home: Path, cluster: ClusterData, *, links: Mapping[str, Path], launch: Path) -> None:
    """`cluster`: the node's cluster_config; `links`: where each shared file or folder is; `launch`: its launch.json."""
    log = paths.logs(home, cluster["run"])
    for folder in (home / "config", home / "models", log):
        folder.mkdir(parents=True, exist_ok=True)
    for name, there in links.items():
        if not (home / name).is_symlink():
            (home / name).symlink_to(there)
    shutil.copyfile(launch, log / paths.LAUNCH)
    write_atomic(home / paths.CLUSTER, json.dumps(cluster).encode(), mode=0o600)  # JSON is YAML


def environment(home: Path) -> dict[str, str]:
    return {name: f"{home}/.cache/{folder}" for name, folder in CACHES.items()} | {"MOTLEY_HOME": str(home)}
