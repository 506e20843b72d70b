"""Nodes that are folders of this machine, for the console's verbs without a lab."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from console.inventory.check import check
from console.inventory.read import Inventory


def inventory_of(tmp_path: Path, homes: Mapping[str, Path]) -> Inventory:
    """By name, each with its home."""
    hosts = {
        name: {"motley_home": str(home), "motley_address": f"127.0.0.{place}"}
        for place, (name, home) in enumerate(homes.items(), 1)
    }
    folder = tmp_path / "inventory"
    folder.mkdir()
    shared = {"ansible_user": "me", "motley_subnet": "127.0.0.0/8", "motley_gateway": "127.0.0.9"}
    shared |= {"ansible_connection": "local", "motley_state": str(tmp_path / "state")}
    (folder / "hosts.yml").write_text(json.dumps({"cluster": {"vars": shared, "hosts": hosts}}))
    found = check(folder)
    assert not found.findings
    return found
