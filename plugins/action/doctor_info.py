"""Runs the module of this name, and says how far the node's clock is off."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from console.clock_skew import Clocked


class ActionModule(Clocked):
    """Found by its file's name."""
