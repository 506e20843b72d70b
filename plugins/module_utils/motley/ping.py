# MIT License, see LICENSE
"""Single packets to another machine, which its kernel answers by itself: round trips, losses, and the largest size."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import statistics
import struct
import time
from typing import Any, TypedDict

PINGS, PING_GAP_S, PING_WAIT_S = 100, 0.005, 0.5
ECHO_REQUEST, ECHO_REPLY = 8, 0
IP_MTU_DISCOVER, IP_PMTUDISC_PROBE = 10, 3  # "do not fragment", whatever the kernel believes of the way


Closed = list[Any]
"""First and last port of a closed range, and why."""


class Link(TypedDict, total=False):
    """What is measured between a node and a peer; None for what could not be."""

    rtt_ms: float | None
    jitter_ms: float | None
    loss_percent: float | None
    reached: str
    """Why it does not answer; empty where it does."""
    shut: list[Closed] | None
    full_packets: bool | None
    mbit_to: float
    mbit_from: float


def pings(address: str) -> Link:
    line = echo_socket()
    if line is None:
        return {"rtt_ms": None, "jitter_ms": None, "loss_percent": None}
    trips: dict[int, float] = {}
    with line:
        line.connect((address, 0))
        line.setblocking(False)
        sent: dict[int, float] = {}
        end = 0.0
        while len(sent) < PINGS or (len(trips) < len(sent) and time.monotonic() < end):
            if len(sent) < PINGS:
                number = len(sent) + 1
                sent[number] = time.perf_counter()
                with contextlib.suppress(OSError):
                    line.send(echo(number))
                end = time.monotonic() + PING_WAIT_S
            gather(line, sent, trips, PING_GAP_S)
    times_ms = [1000 * trip for _, trip in sorted(trips.items())]
    steps = [abs(later - trip) for trip, later in itertools.pairwise(times_ms)]
    return {
        "rtt_ms": round(statistics.median(times_ms), 3) if times_ms else None,
        "jitter_ms": round(statistics.median(steps), 3) if steps else None,
        "loss_percent": round(100 * (1 - len(trips) / PINGS), 1),
    }


def gather(line: socket.socket, sent: dict[int, float], trips: dict[int, float], wait_s: float) -> None:
    end = time.perf_counter() + wait_s
    while (left := end - time.perf_counter()) > 0:
        if not select.select([line], [], [], left)[0]:
            return
        now = time.perf_counter()
        with contextlib.suppress(OSError):
            number = number_of(line.recv(2048))
            if number in sent:
                trips.setdefault(number, now - sent[number])


def full_packets(address: str, mtu: int) -> bool | None:
    """Whether the largest packet that our NIC takes comes back whole; None where small ones do not either."""
    line = echo_socket()
    if line is None:
        return None
    with line:
        line.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
        line.connect((address, 0))
        for size in (mtu - 28, 56):
            for number in (1, 2, 3, 4):
                if comes_back(line, number, size):
                    return size > 56
    return None


def comes_back(line: socket.socket, number: int, size: int) -> bool:
    try:
        line.send(echo(number, size))
        end = time.monotonic() + 0.25
        while (left := end - time.monotonic()) > 0 and select.select([line], [], [], left)[0]:
            answer = line.recv(65536)
            if number_of(answer) == number and len(answer) >= size:
                return True
    except OSError:
        return False
    return False


def echo_socket() -> socket.socket | None:
    """Without root where the system lets its users ping (net.ipv4.ping_group_range), as root anyway."""
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            return socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP)
        except PermissionError:
            continue
    return None


def echo(number: int, size: int = 56) -> bytes:
    body = bytes(size)
    head = struct.pack("!BBHHH", ECHO_REQUEST, 0, 0, os.getpid() & 0xFFFF, number)
    return struct.pack("!BBHHH", ECHO_REQUEST, 0, checksum(head + body), os.getpid() & 0xFFFF, number) + body


def number_of(packet: bytes) -> int:
    """The number of an answer; a raw socket gives the IP head as well. 0 for anything else."""
    if packet and packet[0] >> 4 == 4 and len(packet) >= 28 and packet[9] == 1:
        packet = packet[(packet[0] & 15) * 4 :]
    return int.from_bytes(packet[6:8], "big") if len(packet) >= 8 and packet[0] == ECHO_REPLY else 0


def checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data[: len(data) // 2 * 2]))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF
