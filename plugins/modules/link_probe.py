#!/usr/bin/python
# MIT License, see LICENSE
"""Every pair of nodes measured by itself: who reaches whom, round trip, jitter, loss, throughput, full-size packets.

Runs on all nodes at the same time. All call all others first and try the ports of runs; then pairs take turns as in a
tournament, so that no node is in two measurements at once. A node knows its turn by waiting for its partner: no clock
is compared.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import queue
import select
import socket
import statistics
import struct
import threading
import time
from typing import Any, TypedDict

from ansible.module_utils.motley import knocking
from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.round_robin import turns

DOCUMENTATION = r"""
module: link_probe
short_description: Measure the links between nodes, pair by pair; runs on all of them in parallel
author: Motley
description:
  - Measures round trip, jitter, loss, throughput and full-size packets of every pair of nodes, each pair by itself.
  - Returns what it found and judges nothing; fails only where the port is taken.
options: {
  "name": {"type": "str", "required": true, "description": "This node"},
  "address": {"type": "str", "required": true, "description": "Its address"},
  "nodes": {"type": "dict", "required": true,
    "description": "All nodes that run this now: name to address, in their order"},
  "port": {"type": "int", "required": true, "description": "A free port of the training range"},
  "ports": {"type": "list", "elements": "str", "default": [],
    "description": [
      "Ports of a run, as FIRST-LAST; some of the kernel's own range are tried as well; none: none are tried"
    ]},
  "mtu": {"type": "int", "default": 1500, "description": "What this node's NIC takes"},
  "meet_s": {"type": "float", "default": 15, "description": "How long to wait until all have been reached"},
  "load": {"type": "bool", "default": true, "description": "Whether to measure throughput"}
}
"""
EXAMPLES = """
- name: Measure the links between all nodes
  link_probe:
    name: "{{ inventory_hostname }}"
    address: "{{ motley_address }}"
    nodes: "{{ ansible_play_hosts | motley_addresses(hostvars) }}"
    port: 29892
  register: measured
"""
RETURN = r"""
links: {type: dict, returned: success, description: Peer to what was measured}
called_by: {type: list, elements: str, returned: success, description: Peers that called this node}
took: {type: dict, returned: success, description: Seconds of both parts}
"""
PINGS, PING_GAP_S, PING_WAIT_S = 100, 0.005, 0.5
FLOOD_S, FLOOD_LIMIT_S = 0.35, 3.0
TURN_S = 8.0
DOORS_S = 20.0  # how long a node waits until the others have tried its doors
CHUNK = bytes(1 << 18)
ECHO_REQUEST, ECHO_REPLY = 8, 0
IP_MTU_DISCOVER, IP_PMTUDISC_PROBE = 10, 3  # "do not fragment", whatever the kernel believes of the way


def main() -> None:
    module = module_of(DOCUMENTATION)
    params = module.params
    try:
        door = socket.create_server(("", params["port"]))
    except OSError as taken:
        module.fail_json(msg=f"port {params['port']} is taken there: {taken.strerror}")
    with door:
        here = Here(params)
        threading.Thread(target=here.answer, args=(door,), daemon=True).start()
        start = time.monotonic()
        reached = here.call_all(start + params["meet_s"])
        shut = here.try_doors(reached) if params["ports"] else {}
        met_s = time.monotonic() - start
        links: dict[str, Link] = {
            peer: here.turn(peer, starts=starts, answers=not reached[peer])
            for peer, starts in turns(params["name"], list(params["nodes"]))
        }
    for peer in here.peers:
        links[peer] |= {"reached": reached[peer], "shut": shut.get(peer)}
    took = {"reach": round(met_s, 2), "links": round(time.monotonic() - start - met_s, 2)}
    module.exit_json(changed=False, links=links, called_by=sorted(here.called_by), took=took)


Closed = list[Any]
"""First and last port of a closed range, and why."""


class Link(TypedDict, total=False):
    """What is measured between this node and a peer; None for what could not be."""

    reached: str
    """Why it does not answer; empty where it does."""
    shut: list[Closed] | None
    rtt_ms: float | None
    jitter_ms: float | None
    loss_percent: float | None
    full_packets: bool | None
    mbit_to: float
    mbit_from: float


class Here:
    """This node: answers everybody, calls everybody, and takes its turns."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.params = params
        self.peers = {name: address for name, address in params["nodes"].items() if name != params["name"]}
        self.called_by: set[str] = set()
        self.calls = {peer: queue.Queue[socket.socket]() for peer in self.peers}
        self.doors, self.tried = knocking.Doors(), set[str]()
        self.spans = knocking.spans_of(params["ports"], knocking.kernels_range()) if params["ports"] else []

    def answer(self, door: socket.socket) -> None:
        while True:
            try:
                line, _ = door.accept()
            except OSError:
                return
            threading.Thread(target=self.greet, args=(line,), daemon=True).start()

    def greet(self, line: socket.socket) -> None:
        line.settimeout(TURN_S * len(self.peers) + self.params["meet_s"])
        try:
            words = read_line(line).split()
            if len(words) == 2 and words[1] in self.peers:
                if words[0] == "hello":
                    self.called_by.add(words[1])
                    line.sendall(b"motley\n")
                    line.close()
                elif words[0] == "doors":
                    self.show_doors(line, words[1])
                else:
                    self.calls[words[1]].put(line)
        except OSError:
            line.close()

    def call_all(self, end: float) -> dict[str, str]:
        """Peer → empty when it answered, else why not. Goes on until they have called as well: they may start later."""
        found = dict.fromkeys(self.peers, "not tried")
        while time.monotonic() < end:
            for peer in [name for name, trouble in found.items() if trouble]:
                found[peer] = self.call(peer)
            if not any(found.values()) and self.called_by == set(self.peers):
                break
            time.sleep(0.1)
        return found

    def call(self, peer: str) -> str:
        try:
            with self.open(peer, "hello", 1.0) as line:
                return "" if read_line(line) == "motley" else "somebody else answers"
        except ConnectionRefusedError:
            return "refused"
        except TimeoutError:
            return "no answer"
        except OSError as trouble:
            return errno.errorcode.get(trouble.errno or 0, str(trouble)).lower()

    def open(self, peer: str, word: str, timeout_s: float) -> socket.socket:
        line = socket.create_connection((self.peers[peer], self.params["port"]), timeout=timeout_s)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line.sendall(f"{word} {self.params['name']}\n".encode())
        return line

    def try_doors(self, reached: dict[str, str]) -> dict[str, list[Closed] | None]:
        """Peer → [first, last, why] of each range that is closed; None where it could not be tried."""
        found: dict[str, list[Closed] | None] = {}

        def ask(peer: str) -> None:
            with contextlib.suppress(OSError, ValueError):
                found[peer] = self.closed_at(peer)

        end = time.monotonic() + DOORS_S
        askers = [threading.Thread(target=ask, args=(peer,), daemon=True) for peer in self.peers if not reached[peer]]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join(max(0.0, end - time.monotonic()))
        while not self.called_by <= self.tried and time.monotonic() < end:  # somebody still calls
            time.sleep(0.05)
        self.doors.close()
        return dict(found)

    def show_doors(self, line: socket.socket, caller: str) -> None:
        """Each line asks for ports, and is answered with those that are open for it; until the caller hangs up."""
        try:
            with line, line.makefile("rw") as words:
                words.write(json.dumps(self.spans) + "\n")
                words.flush()
                for asked in words:
                    words.write(json.dumps(self.doors.add(json.loads(asked))) + "\n")
                    words.flush()
        finally:
            self.tried.add(caller)

    def closed_at(self, peer: str) -> list[Closed]:
        with self.open(peer, "doors", 2.0) as line, line.makefile("rw") as words:
            line.settimeout(DOORS_S)
            spans = [tuple(span) for span in json.loads(words.readline())]

            def answers(ports: list[int], tries: int) -> dict[int, str]:
                words.write(json.dumps(ports) + "\n")
                words.flush()
                return knocking.knock(self.peers[peer], json.loads(words.readline()), tries)

            found = answers([port for span in spans for port in knocking.tried(span)], knocking.TRIES)
            between = [port for span in spans for port in knocking.edges(span, found)]
            found |= answers(between[: 4 * knocking.AT_ONCE], 2) if between else {}
            return [list(closed) for span in spans for closed in knocking.closed_ranges(span, found)]

    def turn(self, peer: str, *, starts: bool, answers: bool) -> Link:
        """Both sides come to it when their turns before are over; who begins measures, both keep what they saw."""
        if not starts and peer not in self.called_by:
            return {}  # it does not get here: it will not come to its turn either
        try:
            return self.begin(peer) if starts else self.follow(peer)
        except (OSError, ValueError, queue.Empty):
            # A link that loses packets may break their talk off, and its losses are what is asked for.
            return pings(self.peers[peer]) if starts and answers else {}

    def begin(self, peer: str) -> Link:
        with self.open(peer, "turn", 2.0) as line:
            line.settimeout(TURN_S)
            if read_line(line) != "ready":
                raise OSError("it is not ready")
            found = pings(self.peers[peer]) | {"full_packets": full_packets(self.peers[peer], self.params["mtu"])}
            if self.params["load"]:
                line.sendall(b"flood\n")
                flood(line)
                found["mbit_to"] = float(read_line(line))
                found["mbit_from"] = drain(line)
                line.sendall(f"{found['mbit_from']}\n".encode())
            line.sendall(b"over\n")
            return found

    def follow(self, peer: str) -> Link:
        with self.calls[peer].get(timeout=TURN_S) as line:
            line.settimeout(TURN_S)
            line.sendall(b"ready\n")
            # The route back has its own limit on the size of packets; the rest is the same link.
            found: Link = {"full_packets": full_packets(self.peers[peer], self.params["mtu"])}
            if read_line(line) == "flood":
                line.sendall(f"{drain(line)}\n".encode())
                flood(line)
                read_line(line)
                read_line(line)
            return found


# -- throughput ------------------------------------------------------------------------------------------------


def flood(line: socket.socket) -> None:
    """Sends as much as goes for a moment, then a word that it is over: each block's head says whether more come."""
    end = time.monotonic() + FLOOD_S
    while time.monotonic() < end:
        line.sendall(b"+" + CHUNK)
    line.sendall(b"-")


def drain(line: socket.socket) -> float:
    """Mbit/s at which it arrived."""
    buffer, size = bytearray(len(CHUNK) + 1), len(CHUNK) + 1
    got, start = 0, 0.0
    limit = time.monotonic() + FLOOD_LIMIT_S + TURN_S
    while time.monotonic() < limit:
        count = line.recv_into(buffer, size)
        start = start or time.perf_counter()
        if not count:
            break
        got += count
        # The last byte of all is the word that it is over; blocks are zeros behind their heads.
        if buffer[count - 1] == ord("-"):
            break
    took_s = time.perf_counter() - start
    return got * 8 / 1e6 / took_s if took_s > 0 else 0.0


def read_line(line: socket.socket) -> str:
    """Byte by byte: what follows belongs to the flood."""
    line_read = b""
    while not line_read.endswith(b"\n") and len(line_read) < 200:
        byte = line.recv(1)
        if not byte:
            break
        line_read += byte
    return line_read.decode(errors="replace").strip()


# -- single packets --------------------------------------------------------------------------------------------


def pings(address: str) -> Link:
    """Round trips of small packets that the other's kernel answers by itself."""
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


if __name__ == "__main__":
    main()
