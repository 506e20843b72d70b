"""Submits the job that has been written down."""

from __future__ import annotations

from console.infra import Facts, OnNode
from console.infra.slurm.sbatch_options import of_job


def start(known: Facts, args: Facts) -> OnNode:
    runs = known["motley_plan_decided"]["plan"]["runs"]
    return OnNode("slurm_start", {"home": args["home"], "runs": runs, "options": of_job(known)})
