# MIT License, see LICENSE
"""Magic packets from here to network cards of machines that are off, on the same LAN. Standard library alone."""

from __future__ import annotations

import socket
from pathlib import Path

PORT = 9
"""Discard: nobody answers there; the card reads the packet itself."""


def packet(mac: str) -> bytes:
    return b"\xff" * 6 + bytes.fromhex(mac.replace(":", "")) * 16


def send(macs: list[str], broadcast: str, port: int = PORT) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        for mac in macs:
            out.sendto(packet(mac), (broadcast, port))


def wake(_: Path, macs: list[str], broadcast: str) -> dict[str, int]:
    send(macs, broadcast)
    return {"sent": len(macs)}
