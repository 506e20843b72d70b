"""Runs the module of this name, and says how far the node's clock is off."""

from __future__ import annotations

from console.controller_action import Clocked


class ActionModule(Clocked):
    """Found by its file's name."""
