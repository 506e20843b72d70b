#!/usr/bin/python
# MIT License, see LICENSE
"""Every node listens and calls all others at the same time: who reaches whom on a training port."""

from __future__ import annotations

import errno

from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.who_reaches_whom import meet

DOCUMENTATION = r"""
module: mesh_probe
short_description: Prove that nodes reach each other on a port; runs on all of them in parallel
author: Motley
description:
  - Listens on the port and calls all others until all have answered and called, or time is up; changes nothing.
  - Fails with the names of the nodes that were not reached or did not call.
options: {
  "name": {"type": "str", "required": true, "description": "This node"},
  "port": {"type": "int", "required": true, "description": "A free port of the training range"},
  "peers": {"type": "dict", "required": true, "description": "The others that run this now: name to address"},
  "timeout_s": {"type": "float", "default": 15, "description": "Until when all must have called"}
}
"""
EXAMPLES = r"""
- name: Prove that every node reaches every other
  mesh_probe:
    name: "{{ inventory_hostname }}"
    port: 29899
    peers: {gpu-worker-1: 192.168.1.101}
"""
RETURN = r"""
missed: {type: list, elements: str, returned: always, description: Nodes that did not answer}
"""


def main() -> None:
    module = module_of(DOCUMENTATION)
    params = module.params
    try:
        missed, silent = meet(params["name"], params["port"], params["peers"], params["timeout_s"])
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        module.fail_json(msg=taken(params["port"]))
    if missed or silent:
        module.fail_json(msg=sentence(missed, silent, params["port"]), missed=missed)
    module.exit_json(changed=False, missed=[])


def taken(port: int) -> str:
    return (
        f"port {port} is taken there, so the other nodes cannot call it\n"
        f"fix: end the program that has it (sudo ss -ltnp 'sport = :{port}' shows which), then again"
    )


def sentence(missed: list[str], silent: list[str], port: int) -> str:
    parts = []
    if missed:
        parts.append(f"it does not reach {', '.join(missed)} on port {port}")
    if silent:
        parts.append(f"it was not reached by {', '.join(silent)} on port {port}")
    fix = "look for a rule that denies it (sudo nft list ruleset; sudo ufw status numbered) or a router that isolates"
    return "; ".join(parts) + f"\nfix: {fix} Wi-Fi clients"


if __name__ == "__main__":
    main()
