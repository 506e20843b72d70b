"""Which of a node's ports can be called: doors that it opens for a moment, and calls to all of them at once."""

from __future__ import annotations

import contextlib
import errno
import itertools
import random
import resource
import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterable
from pathlib import Path

STRIDE = 256
"""The step through the kernel's own range; the edges of what is closed are then found exactly."""
AT_ONCE = 512
OWN = range(10000, 29000)
"""The ports from which a later call comes: outside of what the kernel chooses."""
TRIES, TRY_S = 4, 1.2  # a call that is lost is repeated by the kernel after a second
NO_LINGER = struct.pack("ii", 1, 0)  # whoever opens that port next finds no remains of our calls
KERNELS = Path("/proc/sys/net/ipv4/ip_local_port_range")

Span = tuple[int, int, int]
"""First port, last port, and the step between those that are tried."""


def spans_of(ranges: Iterable[str], kernels: tuple[int, int]) -> list[Span]:
    """The spans of ports to try: all those of a run, and some of the kernel's own."""
    fixed = [word.partition("-") for word in ranges]
    return [(int(low), int(high or low), 1) for low, _, high in fixed] + [(*kernels, STRIDE)]


def kernels_range() -> tuple[int, int]:
    low, high = KERNELS.read_text().split()
    return int(low), int(high)


def tried(span: Span) -> list[int]:
    first, last, step = span
    return sorted({*range(first, last + 1, step), last})


def closed_ranges(span: Span, answers: dict[int, str]) -> list[tuple[int, int, str]]:
    """Neighbours that are closed, of those that were tried, with the first one's reason."""
    ranges: list[tuple[int, int, str]] = []
    before = ""
    for port in sorted(port for port in answers if span[0] <= port <= span[1]):
        if answers[port]:
            first, _, why = ranges.pop() if before else (port, port, answers[port])
            ranges.append((first, port, why))
        before = answers[port]
    return ranges


def edges(span: Span, answers: dict[int, str]) -> list[int]:
    """Ports between a closed one and its open neighbour: somewhere there the rule begins or ends."""
    ports = sorted(port for port in answers if span[0] <= port <= span[1])
    pairs = itertools.pairwise(ports)
    return [p for low, high in pairs if bool(answers[low]) != bool(answers[high]) for p in range(low + 1, high)]


class Doors:
    """Listening sockets; nobody accepts, as the kernel answers calls by itself. Ports that are in use stay alone."""

    def __init__(self) -> None:
        self.open: dict[int, socket.socket] = {}
        self.busy = threading.Lock()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))

    def add(self, ports: Iterable[int]) -> list[int]:
        """Opens these ports; returns those of them that are open now."""
        wanted = list(ports)
        with self.busy:
            for port in wanted:
                if port not in self.open:
                    with contextlib.suppress(OSError):
                        self.open[port] = socket.create_server(("", port), backlog=64)
            return [port for port in wanted if port in self.open]

    def close(self) -> None:
        for door in self.open.values():
            door.close()


def knock(address: str, ports: Iterable[int], tries: int = TRIES) -> dict[int, str]:
    """Port → empty where it answers, else why not. What does not answer is tried again: packets get lost, and a rule
    here may drop answers to the port that the kernel chose for the call; so the later ones come from others."""
    answers = dict.fromkeys(ports, "no answer")
    for again in range(tries):
        left = [port for port, trouble in answers.items() if trouble == "no answer"]
        for start in range(0, len(left), AT_ONCE):
            answers |= knock_once(address, left[start : start + AT_ONCE], chosen=again > 0)
    return answers


def knock_once(address: str, ports: list[int], *, chosen: bool = False) -> dict[int, str]:
    own_ports = random.sample(OWN, len(ports)) if chosen else [0] * len(ports)
    answers = dict.fromkeys(ports, "no answer")
    with selectors.DefaultSelector() as waiting, contextlib.ExitStack() as lines:
        for port, own_port in zip(ports, own_ports):  # noqa: B905  Python 3.9 has no strict=
            line = lines.enter_context(socket.socket())
            line.setblocking(False)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            with contextlib.suppress(OSError):
                line.bind(("", own_port))
            code = line.connect_ex((address, port))
            if code in {0, errno.EINPROGRESS}:
                waiting.register(line, selectors.EVENT_WRITE, (port, line))
            else:
                answers[port] = word_of(code)
        end = time.monotonic() + TRY_S
        while waiting.get_map() and (left := end - time.monotonic()) > 0:
            for key, _ in waiting.select(left):
                port, line = key.data
                answers[port] = word_of(line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
                waiting.unregister(line)
    return answers


def word_of(code: int) -> str:
    return {0: "", errno.ECONNREFUSED: "refused"}.get(code, errno.errorcode.get(code, str(code)).lower())
