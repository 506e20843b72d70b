# MIT License, see LICENSE
"""The machines that are rented now, from the leases on the controller: no key, no network, none whose time is over."""

from __future__ import annotations

import os
import sys
from typing import Any

from ansible.plugins.inventory import BaseInventoryPlugin

DOCUMENTATION = r"""
name: motley_rented
short_description: Machines that ./motley rent has rented
description:
  - Reads the leases of this controller; asks no market and needs no key.
options: {
  "plugin": {"description": "motley_rented", "required": true, "choices": ["motley_rented"]},
  "group": {"description": "The group that they join", "type": "str", "default": "cluster"}
}
"""


def is_missing(path: str) -> bool:
    """The inventory of ansible.cfg, in a fresh clone: Ansible itself would only say that it cannot parse it."""
    return path.endswith("/hosts.yml") and not os.path.exists(path)  # noqa: PTH110 - a text, as Ansible has it


class InventoryModule(BaseInventoryPlugin):
    NAME = "motley_rented"

    def verify_file(self, path: str) -> bool:
        return (super().verify_file(path) and path.endswith("rented.yml")) or is_missing(path)

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        if is_missing(path):
            print(
                f"no machines are described yet in {path}\nfix: ./motley inventory   (it asks for them)",
                file=sys.stderr,
            )
            sys.exit(2)
        from console.rent import rented_now  # noqa: PLC0415  not where nothing is rented_now

        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        group = inventory.add_group(self.get_option("group"))
        for name, values in rented_now.hosts().items():
            inventory.add_host(name, group)
            for key, value in values.items():
                inventory.set_variable(name, key, value)
