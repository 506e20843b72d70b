#!/usr/bin/python
# MIT License, see LICENSE
"""All that `./motley doctor` wants to know of a node by itself, looked at once. Changes nothing, judges nothing."""

from __future__ import annotations

import os
import pwd
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ansible.module_utils.motley import doctor_machine as machine
from ansible.module_utils.motley import doctor_motley as motley
from ansible.module_utils.motley import doctor_network as network
from ansible.module_utils.motley import listening_ports
from ansible.module_utils.motley.documented import module_of

DOCUMENTATION = r"""
module: doctor_info
short_description: A node's own state, part by part, each with the seconds it took; a part that fails says why
author: Motley
description:
  - Reads what C(./motley doctor) judges; changes nothing and judges nothing.
  - A part that cannot be read is null, and its error is in look.troubles.
  - Disk and processor are tried for a moment only while no run uses them.
options: {
  "user": {"type": "str", "required": true, "description": "Whose home the cluster lives in"},
  "home": {"type": "str", "required": true, "description": "The cluster's folder on the node, ~ is the user's"},
  "address": {"type": "str", "required": true, "description": "The node's own address"},
  "cluster": {"type": "dict", "required": true, "description": "All nodes: name to address"},
  "manage_host": {"type": "bool", "default": true,
    "description": "Whether the node is a machine and not a folder on one"},
  "load": {"type": "bool", "default": true, "description": "Whether disk and processor may be tried for a moment"}
}
"""
EXAMPLES = """
- name: Look at everything, as root
  doctor_info:
    user: "{{ ansible_user }}"
    home: ~/ai-cluster
    address: "{{ motley_address }}"
    cluster: "{{ groups['cluster'] | motley_addresses(hostvars) }}"
  become: true
  register: seen
"""
RETURN = r"""
look: {type: dict, returned: always, description: "The parts by name, took (seconds of each) and troubles"}
clock: {type: list, elements: float, returned: always, description: The node's clock at the beginning and at the end}
"""


def main() -> None:
    module = module_of(DOCUMENTATION)
    params = module.params
    began = time.time()
    owner = pwd.getpwnam(params["user"]) if params["user"] else pwd.getpwuid(os.getuid())
    home = Path(params["home"].replace("~", owner.pw_dir, 1) if params["home"].startswith("~") else params["home"])
    look: dict[str, Any] = {"root": os.geteuid() == 0, "home": str(home), "took": {}}
    part(look, "runs", lambda: motley.runs(home))
    if params["manage_host"]:
        part(look, "phases", motley.phases)  # while no other thread needs root: it looks as the person
    parts: dict[str, Callable[[], Any]] = {
        "names": lambda: network.names(params["cluster"]),
        "disk": lambda: machine.disk(home),
        "files": lambda: motley.files(home),
    }
    if params["manage_host"]:
        others = {name: address for name, address in params["cluster"].items() if address != params["address"]}
        parts |= {
            "network": lambda: network.look(params["address"], others),
            "power": machine.power,
            "gpu": machine.gpu,
            "apt": machine.apt,
            "units": motley.units,
            "firewall": motley.firewall,
            "rules": motley.rules,
            "caller": lambda: listening_ports.address_in(listening_ports.connection()),
        }
    with ThreadPoolExecutor(4) as pool:  # they wait for programs more than they compute
        list(pool.map(lambda named: part(look, *named), parts.items()))
    if params["load"] and not (look["runs"] or {}).get("on"):
        part(look, "disk_speed", lambda: machine.disk_speed(home))
        part(look, "processor", machine.processor)
    module.exit_json(changed=False, look=look, clock=[began, time.time()])


def part(look: dict[str, Any], name: str, read: Callable[[], Any]) -> None:
    """A part that cannot be read is no reason to know nothing of the others."""
    start = time.monotonic()
    try:
        look[name] = read()
    except Exception:
        look[name] = None
        look.setdefault("troubles", {})[name] = traceback.format_exc(limit=-1).strip().splitlines()[-1]
    look["took"][name] = round(time.monotonic() - start, 2)


if __name__ == "__main__":
    main()
