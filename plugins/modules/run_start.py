#!/usr/bin/python
# MIT License, see LICENSE
"""Starts this node's part of a run that has been written down for it."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.start_stop_status import start

DOCUMENTATION = r"""
module: run_start
short_description: Start a run on this node, as the login user
author: Motley
description:
  - Starts this node's part of a run that has been written down, by motley-run.service where the node has it.
  - Fails where another run is running, or where the run ends at once.
options: {
  "home": {"type": "path", "required": true, "description": "The cluster's folder on the node"},
  "run": {"type": "str", "required": true, "description": "Its name"},
  "managed": {"type": "bool", "default": true, "description": "Whether the node should have Motley's unit"}
}
"""
EXAMPLES = """
- name: Start its part of a run that is written down
  run_start:
    home: ~/ai-cluster
    run: my-run
"""
RETURN = r"""
started: {type: dict, returned: success, description: "run, pid, how, and the node's clock"}
"""


def main() -> None:
    module = module_of(DOCUMENTATION)
    if module.check_mode:
        module.exit_json(changed=True)
    params = module.params
    started = start(Path(params["home"]), params["run"], params["managed"])
    if "failed" in started:
        module.fail_json(msg=started["failed"])
    module.exit_json(changed=True, started=started, motley_say=started["note"])


if __name__ == "__main__":
    main()
