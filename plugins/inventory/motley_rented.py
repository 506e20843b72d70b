# MIT License, see LICENSE
"""The machines that are rented now, from the leases on the controller: no key, no network, none whose time is over."""

from __future__ import annotations

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


class InventoryModule(BaseInventoryPlugin):
    NAME = "motley_rented"

    def verify_file(self, path: str) -> bool:
        return super().verify_file(path) and path.endswith("rented.yml")

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        from console.rent import rented  # noqa: PLC0415  not where nothing is rented

        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        group = inventory.add_group(self.get_option("group"))
        for name, values in rented.hosts().items():
            inventory.add_host(name, group)
            for key, value in values.items():
                inventory.set_variable(name, key, value)
