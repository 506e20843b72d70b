"""Starts a run that is written down, as the infra of the host does it (console/infra/NAME/start.py)."""

from __future__ import annotations

from console.controller_action import InfraStep


class ActionModule(InfraStep):
    step = "start"
