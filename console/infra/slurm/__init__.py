"""A Slurm of somebody else's, by its login node: a run is a job there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from console.infra import Infra
from console.infra.slurm.options import options_of
from train.errors import BadInput


def wrong(own: Mapping[str, Any]) -> list[str]:
    gb = str(own.get("slurm_gpu_gb") or 1)
    found = [] if re.fullmatch(r"\d+(\.\d+)?", gb) else [f"slurm_gpu_gb: '{gb}' is no number of GB"]
    try:
        options_of(str(own.get("slurm_options") or ""))
    except BadInput as finding:
        found.append(str(finding))
    return found


INFRA = Infra(
    one_host="one host, the login node: which nodes a job gets, Slurm decides (slurm_options)",
    keys={"motley_slurm_options": "str"},
    variables=("slurm_options", "slurm_gpu_gb", "sweep"),
    refused={
        "nodes": "Slurm chooses them\nfix: --slurm-options '--nodes=3', or '--nodelist=NAMES'",
        "at": "Slurm keeps the time\nfix: --slurm-options '--begin=22:00'",
        "then": "the machines of a Slurm are not ours to switch off\nfix: leave it out",
    },
    lacks={"torchrun": "a script of your own is a job of your own there: sbatch submits it"},
    wrong=wrong,
)
