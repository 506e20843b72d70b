"""Starts each machine's part of the run that has been written down for it, or puts the run into their queue."""

from __future__ import annotations

from console import queue
from console.infra import Facts, OnNode


def start(known: Facts, args: Facts) -> OnNode | Facts:
    if known["motley_request_checked"]["asked"]["queue"]:
        return queue.put(known) if known["inventory_hostname"] == known["ansible_play_hosts"][0] else {}
    return OnNode("run_start", args)
