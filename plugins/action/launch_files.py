"""Writes down what a run runs by, as the infra of the host does it (console/infra/NAME/files.py)."""

from __future__ import annotations

from console.controller_action import InfraStep


class ActionModule(InfraStep):
    step = "files"
