"""Asks what a launch can use, as the infra of the host does it (console/infra/NAME/look.py)."""

from __future__ import annotations

from console.controller_action import InfraStep


class ActionModule(InfraStep):
    step = "look"
