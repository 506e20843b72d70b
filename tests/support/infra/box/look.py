"""Looks where the box is."""

from __future__ import annotations

from console.infra import Facts


def look(known: Facts, args: Facts) -> Facts:
    values = known["hostvars"][known["inventory_hostname"]]
    return {"look": {"home": f"{values['motley_state_folder']}/box"}}
