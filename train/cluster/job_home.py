"""The home of a node that a job makes for itself: its own files, and links to what all nodes of the job read."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from train.files import write_atomic
from train.plan.launch.cluster_config import ClusterConfig
from train.runlog import paths
from train.runlog.secret import Secret

CACHES = {
    "HF_HOME": "huggingface",
    "UNSLOTH_COMPILE_LOCATION": "unsloth",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
}


def furnish(
    home: Path, cluster: ClusterConfig, shared: Path, names: Iterable[str], *, launch: Path, messages: str = ""
) -> None:
    """`names`: what is there once for all nodes, below `shared`; `launch`: the record of what was launched; `messages`:
    where they go."""
    log = paths.logs(home, cluster.run)
    for folder in (home / "config", home / "models", log):
        folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if not (home / name).is_symlink():
            (home / name).symlink_to(shared / name)
    shutil.copyfile(launch, log / paths.LAUNCH)
    secret = Secret(token=cluster.token, messages=messages)
    write_atomic(home / paths.SECRET, secret.to_json().encode(), mode=0o600)
    write_atomic(home / paths.CLUSTER, cluster.to_text().encode())


def environment(home: Path) -> dict[str, str]:
    return {name: f"{home}/.cache/{folder}" for name, folder in CACHES.items()} | {"MOTLEY_HOME": str(home)}
