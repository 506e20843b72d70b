#!/usr/bin/python
# MIT License, see LICENSE
"""Which key opens each node: ours already, or as yet only one of the person who types. Runs on the controller."""

from __future__ import annotations

import shlex
from pathlib import Path

from ansible.module_utils.motley import try_key
from ansible.module_utils.motley.documented import module_of

DOCUMENTATION = r"""
module: login_probe
short_description: Find the nodes that only a key of the person who types opens
author: Motley
description:
  - Ansible offers a node our key and the password alone, so that an agent full of keys does no harm.
  - Where our key opens nothing yet and one of the agent or of ~/.ssh does, that one is needed for the first contact.
  - Changes nothing.
options: {
  "nodes": {"type": "list", "elements": "dict", "required": true,
    "description": "Name, user, address and port of each"},
  "state_folder": {"type": "path", "required": true, "description": "Holds known_hosts and the controller's key"}
}
"""
EXAMPLES = """
- name: Find the machines that only a key of yours opens
  login_probe:
    nodes:
      - {name: gpu-master, user: anna, address: 192.168.1.100, port: 22}
    state_folder: .motley
  delegate_to: localhost
  run_once: true
"""
RETURN = """
names: {type: list, elements: str, returned: always, description: The nodes that only such a key opens}
ssh_args: {type: str, returned: always, description: "Options of ssh that offer these keys, and no others"}
"""


def main() -> None:
    module = module_of(DOCUMENTATION)
    own = try_key.own_keys(Path.home() / ".ssh", try_key.agent_has_some())
    names = try_key.opened_by(own, module.params["nodes"], module.params["state_folder"])
    module.exit_json(changed=False, names=names, ssh_args=shlex.join(own))


if __name__ == "__main__":
    main()
