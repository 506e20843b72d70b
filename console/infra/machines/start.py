"""Starts each machine's part of the run that has been written down for it."""

from __future__ import annotations

from console.infra import Facts, OnNode


def start(known: Facts, args: Facts) -> OnNode:
    return OnNode("run_start", args)
