"""Reads what a person asked for from Ansible's own extra variables (-e name=value, -e @file, JSON) and checks it.

Only the extra variables show a misspelled name beside one of the inventory's; a role's argument spec never sees it.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ansible.utils.vars import load_extra_vars

from console import launch_request
from console.adapter_of_run import bring_adapter, run_of
from console.controller_action import Facts, OnController
from console.infra import USUAL, about, name_of
from console.infra.node import from_hostvars


class ActionModule(OnController):
    def answer(self, known: Facts, args: Facts) -> Facts:
        given = dict(load_extra_vars(self._loader))
        cluster = list(known["groups"].get("cluster", []))
        limit = list(known["ansible_play_hosts_all"]) if "ansible_limit" in known else None
        values = [known["hostvars"][name] for name in limit or cluster]
        homes = [str(node["motley_home"]) for node in values if node["motley_manage_host"] and "motley_home" in node]
        rendered = {name: self._rendered(name, value, known) for name, value in given.items()}
        on = name_of(known["hostvars"][cluster[0]]) if cluster else USUAL
        if (run := run_of(rendered)) and "adapter" not in about(on).refused:
            rendered["adapter"] = str(bring_adapter(run, from_hostvars(limit or cluster, known["hostvars"])))
        return {"asked": asdict(launch_request.read(rendered, cluster, limit, homes, on=on))}

    @staticmethod
    def _rendered(name: str, value: Any, known: dict[str, Any]) -> Any:
        """Motley's own are not looked into: one of them may be locked by ansible-vault."""
        return None if name.startswith("motley_") else known.get(name, value)
