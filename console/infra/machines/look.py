"""Asks each machine for its facts, its runs and its versions."""

from __future__ import annotations

from console.infra import Facts, OnNode


def look(known: Facts, args: Facts) -> OnNode:
    return OnNode("launch_info", args)
