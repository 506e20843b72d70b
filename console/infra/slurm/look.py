"""Asks Slurm where and when a job with these options would run, and reads the versions of what trains."""

from __future__ import annotations

from console.infra import Facts, OnNode
from console.infra.slurm.sbatch_options import of_job


def look(known: Facts, args: Facts) -> OnNode:
    return OnNode("slurm_info", {"home": args["home"], "packages": args["packages"], "options": of_job(known)})
