"""Delay, jitter and loss on one host's cable, in both directions.

Where the kernel has sch_netem, netem does it. Elsewhere bridged packets of that cable are handed to this file, run as a
program in the switch's namespace, which answers "accept" late or "drop": the kernel holds the packets meanwhile.

    python delay.py QUEUE DELAY_MS JITTER_MS LOSS_PERCENT     (inside the namespace; started by lab/shaping.py)
"""

from __future__ import annotations

import ctypes
import random
import select
import signal
import socket
import struct
import sys
import time
from collections import deque

NETLINK_NETFILTER = 12
NFNL_SUBSYS_QUEUE = 3 << 8
PACKET, VERDICT, CONFIG, VERDICT_BATCH = (NFNL_SUBSYS_QUEUE | kind for kind in range(4))
DROP, ACCEPT = 0, 1


def main() -> None:
    queue = int(sys.argv[1])
    delay_s, jitter_s, loss = float(sys.argv[2]) / 1e3, float(sys.argv[3]) / 1e3, float(sys.argv[4]) / 100
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ctypes.CDLL(None).prctl(29, 1000, 0, 0, 0)  # timer slack of 1 µs: late verdicts would be extra delay
    hold(open_queue(queue), queue, delay_s, jitter_s, loss)


def message(queue: int, kind: int, *attributes: tuple[int, bytes], flags: int = 1) -> bytes:
    body = struct.pack("!BBH", 0, 0, queue)
    for number, value in attributes:
        body += struct.pack("=HH", 4 + len(value), number) + value + b"\0" * (-len(value) % 4)
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 0, 0) + body


def open_queue(queue: int) -> socket.socket:
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    link.bind((0, 0))
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    link.setsockopt(270, 5, 1)  # SOL_NETLINK, NETLINK_NO_ENOBUFS
    settings: tuple[tuple[tuple[int, bytes], ...], ...] = (
        ((1, struct.pack("!BBH", 1, 0, 2)),),  # bind
        ((2, struct.pack("!IB", 0, 1)),),  # we need to know of packets, not to read them
        ((3, struct.pack("!I", 20000)), (5, struct.pack("!I", 5)), (4, struct.pack("!I", 5))),  # length; fail-open, gso
    )
    for attributes in settings:
        link.send(message(queue, CONFIG, *attributes, flags=5))
        error = struct.unpack_from("=i", link.recv(65536), 16)[0]
        if error:
            sys.exit(f"nfqueue: errno {-error}")
    link.setblocking(False)
    return link


def hold(link: socket.socket, queue: int, delay_s: float, jitter_s: float, loss: float) -> None:
    """Forever: note when each packet came, let it go (in order) when its time is up."""
    waiting: deque[tuple[float, int, bool]] = deque()
    last = 0.0
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        if select.select([link], [], [], timeout)[0]:
            for packet in arrived(link):
                extra = delay_s + (random.gauss(0, jitter_s) if jitter_s else 0)
                last = max(last, time.monotonic() + max(0.0, extra))
                waiting.append((last, packet, not (loss and random.random() < loss)))
        release(link, queue, waiting)


def arrived(link: socket.socket) -> list[int]:
    packets: list[int] = []
    while True:
        try:
            data = link.recv(65536)
        except BlockingIOError:
            return packets
        at = 0
        while at + 16 <= len(data):
            length, kind = struct.unpack_from("=IH", data, at)
            attribute = at + 20
            while kind == PACKET and attribute < at + length:
                size, number = struct.unpack_from("=HH", data, attribute)
                if number & 0x7FFF == 1:
                    packets.append(struct.unpack_from("!I", data, attribute + 4)[0])
                    break
                attribute += (size + 3) & ~3
            at += (length + 3) & ~3


def release(link: socket.socket, queue: int, waiting: deque[tuple[float, int, bool]]) -> None:
    now, newest = time.monotonic(), None
    while waiting and waiting[0][0] <= now:
        _, packet, good = waiting.popleft()
        if good:
            newest = packet
            continue
        if newest is not None:
            link.send(message(queue, VERDICT_BATCH, (2, struct.pack("!II", ACCEPT, newest))))
            newest = None
        link.send(message(queue, VERDICT, (2, struct.pack("!II", DROP, packet))))
    if newest is not None:
        link.send(message(queue, VERDICT_BATCH, (2, struct.pack("!II", ACCEPT, newest))))


if __name__ == "__main__":
    main()
