"""Keeps on the controller which network card leads to each node: a machine that is off tells nobody (./motley wake)."""

from __future__ import annotations

from pathlib import Path

from console import wake
from console.controller_action import Facts, OnController


class ActionModule(OnController):
    def answer(self, known: Facts, args: Facts) -> Facts:
        found = {name: wake.card_of(known["hostvars"][name]) for name in known["ansible_play_hosts"]}
        if not self._task.check_mode:
            wake.remember(Path(str(args["state_folder"])), found)
        return {}
