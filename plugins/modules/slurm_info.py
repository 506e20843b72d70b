#!/usr/bin/python
# MIT License, see LICENSE
"""What a launch must know of a Slurm: whether it takes these options, where and when it would run, and our runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TypedDict

from ansible.module_utils.motley import slurm_login_node
from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.files import existing
from ansible.module_utils.motley.versions import collect

DOCUMENTATION = r"""
module: slurm_info
short_description: Ask Slurm where and when a job with these options would run; submits nothing
author: Motley
description:
  - Asks C(sbatch --test-only) and C(scontrol), and reads the runs below C(home)/jobs, and all versions.
options: {
  "home": {"type": "path", "required": true, "description": "The cluster's folder, shared by all nodes"},
  "packages": {"type": "list", "elements": "str", "default": [],
    "description": "Python packages to return the versions of"},
  "options": {"type": "list", "elements": "str", "default": [], "description": "Options of sbatch"}
}
"""
EXAMPLES = """
- name: Ask where and when a job would run
  slurm_info:
    home: ~/ai-cluster
    options: [--partition=gpu]
  register: seen
"""
RETURN = r"""
look: {type: dict, returned: success, description: Where and when it would run; its nodes; the runs}
versions: {type: dict, returned: success, description: Key to version or hash; null where there is none}
"""
SBATCH_S = 60.0
WOULD = re.compile(r"to start at (\S+) using \d+ processors on nodes? (\S+) in partition (\S+)")


def main() -> None:
    module = module_of(DOCUMENTATION)
    home, options = Path(module.params["home"]), module.params["options"]
    try:
        would = asked(options)
        seen = {
            "home": os.path.realpath(home),
            "free_bytes": shutil.disk_usage(existing(home)).free,
            "start": would[1],
            "partition": would[3],
            "nodes": [{**node, **processes(node, options)} for node in nodes(would[2])],
            "runs": slurm_login_node.known(home),
        }
    except OSError as error:
        module.fail_json(msg=f"{error}")
    versions = collect(home, module.params["packages"], write=not module.check_mode)
    module.exit_json(changed=False, look=seen, versions=versions)


def asked(options: list[str]) -> re.Match[str]:
    """OSError with Slurm's own words where it takes no job of this kind."""
    if not shutil.which("sbatch"):
        raise OSError("there is no sbatch here\nfix: name the login node in inventory/slurm/hosts.yml")
    words = shlex.split(" ".join(options))
    command = ["sbatch", "--test-only", "--ntasks-per-node=1", *words, "--wrap=true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SBATCH_S)
    except subprocess.TimeoutExpired:
        fix = "see whether Slurm answers there (scontrol ping), then again"
        raise OSError(f"sbatch gave no answer within {SBATCH_S:g} s\nfix: {fix}") from None
    answer = WOULD.search(done.stderr)
    if done.returncode or not answer:
        words = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in done.stderr.strip().splitlines()]
        said = "; ".join(dict.fromkeys(words)) or f"it ended with {done.returncode}"
        where = f"slurm_options: {' '.join(options) or '(none)'}"
        raise OSError(f"Slurm takes no such job: {said}\nwhere: {where}\nfix: sinfo shows what there is")
    return answer


class SlurmNode(TypedDict):
    name: str
    address: str
    cores: int
    memory_bytes: int
    cards: list[str]


class Processes(TypedDict):
    cards: list[str]
    processes: int


def nodes(names: str) -> list[SlurmNode]:
    listed = slurm_login_node.slurm("scontrol", "show", "hostnames", names).split()
    described = slurm_login_node.slurm("scontrol", "show", "node", "-o", names).splitlines()
    facts_of = {facts["NodeName"]: facts for line in described if (facts := dict(re.findall(r"(\w+)=(\S*)", line)))}
    return [
        {
            "name": name,
            "address": facts_of[name]["NodeAddr"],
            "cores": int(facts_of[name]["CPUTot"]),
            "memory_bytes": int(facts_of[name]["RealMemory"]) << 20,
            "cards": cards(facts_of[name].get("Gres", "")),
        }
        for name in listed
    ]


def cards(gres: str) -> list[str]:
    """A card's type, as often as the node has it."""
    kinds = re.findall(r"gpu(?::([A-Za-z][\w.-]*))?:(\d+)", gres)
    return [kind or "gpu" for kind, count in kinds for _ in range(int(count))]


def processes(node: SlurmNode, options: list[str]) -> Processes:
    """A node's cards and processes: of a total over all nodes its share shows at the start; all cards until then."""
    asks, count = slurm_login_node.cards_asked(options)
    if not asks:
        return {"cards": [], "processes": 1}
    cards = node["cards"][:count]
    return {"cards": cards, "processes": max(1, len(cards))}


if __name__ == "__main__":
    main()
