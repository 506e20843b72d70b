#!/usr/bin/python
# MIT License, see LICENSE
"""Which run is running on this node, or begins at its next moment."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.run_processes import run_on

DOCUMENTATION = r"""
module: run_info
short_description: Which run is running on this node
author: Motley
description:
  - Looks for processes of a run below O(home), and for the file that lets its unit start one. Changes nothing.
options: {
  "home": {"type": "path", "required": true, "description": "The cluster's folder on the node"}
}
"""
EXAMPLES = """
- name: Look for a run that is running
  run_info:
    home: ~/ai-cluster
  register: seen
"""
RETURN = r"""
run: {type: str, returned: success, description: Its name; empty where none is running and none is wanted}
"""


def main() -> None:
    module = module_of(DOCUMENTATION)
    module.exit_json(changed=False, run=run_on(Path(module.params["home"])))


if __name__ == "__main__":
    main()
