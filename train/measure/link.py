"""The link itself: plain TCP around the ring, everybody to the next one at once, as iperf measures it; a round trip.

What is measured over it is compared with this, in the same run. Without torch: `gather` gives each rank what all have.
"""

from __future__ import annotations

import os
import socket
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

from train.errors import CheckFailed

RING_BYTES = 16 << 20
PINGS = 20
WAIT_S = 30.0

Gather = Callable[[Any], list[Any]]
"""Takes this rank's value and returns that of each rank, in rank order."""


def ring(gather: Gather, rank: int, address: str, *, turns: int) -> tuple[float, float]:
    """Mbit/s of the slowest link around the ring while all of them are used, and the longest round trip in seconds."""
    with socket.create_server((address, 0)) as door:
        door.settimeout(WAIT_S)
        doors = gather(list(door.getsockname()[:2]))
        next_door = doors[(rank + 1) % len(doors)]
        rates = [min(gather(received_mbit(door, next_door))) for _ in range(turns)]
        answers = threading.Thread(target=echo, args=(door,))
        answers.start()
        trips = gather(round_trip_s(next_door))
        answers.join()
    return statistics.median(rates), max(trips)


def own_address() -> str:
    """This node's address towards the first node, which the kernel knows; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ.get("MASTER_ADDR", "127.0.0.1"), 9))
        return str(probe.getsockname()[0])


def received_mbit(door: socket.socket, next_door: list[Any]) -> float:
    """How fast the rank before sends to this one, while this one sends to the next."""
    sender = threading.Thread(target=send, args=(next_door,))
    sender.start()
    line = accepted(door)
    buffer, got, start = bytearray(1 << 20), 0, 0.0
    with line:
        while count := line.recv_into(buffer):
            start = start or time.perf_counter()
            got += count
    took_s = time.perf_counter() - start
    sender.join()
    return got * 8 / took_s / 1e6


def send(door: list[Any]) -> None:
    with connected(door) as line:
        line.sendall(bytes(RING_BYTES))


def echo(door: socket.socket) -> None:
    with accepted(door) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while byte := line.recv(1):
            line.sendall(byte)


def round_trip_s(door: list[Any]) -> float:
    with connected(door) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trips = []
        for _ in range(PINGS):
            start = time.perf_counter()
            line.sendall(b"?")
            line.recv(1)
            trips.append(time.perf_counter() - start)
    return statistics.median(trips)


def accepted(door: socket.socket) -> socket.socket:
    """The connection of the rank before this one."""
    try:
        return door.accept()[0]
    except TimeoutError:
        raise CheckFailed(
            f"nobody connected to {door.getsockname()[0]} within {WAIT_S:.0f} s: the machine before it cannot reach it",
            fix="a firewall on it must pass all ports to the others: ./motley bootstrap --phase firewall",
        ) from None


def connected(door: list[Any]) -> socket.socket:
    return socket.create_connection((door[0], door[1]), timeout=WAIT_S)
