#!/usr/bin/python
# MIT License, see LICENSE
"""Submits the job that has been written down."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.slurm_login_node import start

DOCUMENTATION = r"""
module: slurm_start
short_description: Submit a run as a job of Slurm, as the login user
author: Motley
description:
  - Submits C(scripts/launch_cluster.sbatch) below C(home), and notes the job's number with its runs.
options: {
  "home": {"type": "path", "required": true, "description": "The cluster's folder, shared by all nodes"},
  "runs": {"type": "list", "elements": "str", "required": true, "description": "Its run; of a sweep all of them"},
  "options": {"type": "list", "elements": "str", "default": [], "description": "The options of sbatch that were given"}
}
"""
EXAMPLES = """
- name: Submit a run that is written down
  slurm_start:
    home: ~/ai-cluster
    runs: [my-run]
    options: [--partition=gpu]
"""
RETURN = r"""
started: {type: dict, returned: success, description: "run, how, and the node's clock"}
"""


def main() -> None:
    module = module_of(DOCUMENTATION)
    if module.check_mode:
        module.exit_json(changed=True)
    started = start(Path(module.params["home"]), module.params["runs"], module.params["options"])
    if "failed" in started:
        module.fail_json(msg=started["failed"])
    module.exit_json(changed=True, started=started, motley_say=started["note"])


if __name__ == "__main__":
    main()
