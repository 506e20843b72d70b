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
import json
import queue
import socket
import threading
import time
from typing import TypedDict

from ansible.module_utils.motley import port_probe
from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.ping import Closed, Link, full_packets, pings

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
FLOOD_S, FLOOD_LIMIT_S = 0.35, 3.0
TURN_S = 8.0
DOORS_S = 20.0  # how long a node waits until the others have tried its doors
CHUNK = bytes(1 << 18)


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


def turns(me: str, names: list[str]) -> list[tuple[str, bool]]:
    """This node's partners in the order of a tournament, and whether it is the one who begins: every pair meets once,
    and nobody is in two at a time."""
    seats: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    order = []
    for _ in range(len(seats) - 1):
        for one, other in zip(seats[: len(seats) // 2], reversed(seats[len(seats) // 2 :])):  # noqa: B905
            if me in (one, other) and one is not None and other is not None:
                partner = other if one == me else one
                order.append((partner, names.index(me) < names.index(partner)))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return order


class Options(TypedDict):
    name: str
    nodes: dict[str, str]
    port: int
    ports: list[str]
    meet_s: float
    mtu: int
    load: bool


class Here:
    """This node: answers everybody, calls everybody, and takes its turns."""

    def __init__(self, params: Options) -> None:
        self.params = params
        self.peers = {name: address for name, address in params["nodes"].items() if name != params["name"]}
        self.called_by: set[str] = set()
        self.calls = {peer: queue.Queue[socket.socket]() for peer in self.peers}
        self.doors, self.tried = port_probe.Doors(), set[str]()
        self.spans = port_probe.spans_of(params["ports"], port_probe.kernels_range()) if params["ports"] else []

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
        answers = dict.fromkeys(self.peers, "not tried")
        while time.monotonic() < end:
            for peer in [name for name, trouble in answers.items() if trouble]:
                answers[peer] = self.call(peer)
            if not any(answers.values()) and self.called_by == set(self.peers):
                break
            time.sleep(0.1)
        return answers

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
        closed: dict[str, list[Closed] | None] = {}

        def ask(peer: str) -> None:
            with contextlib.suppress(OSError, ValueError):
                closed[peer] = self.closed_at(peer)

        end = time.monotonic() + DOORS_S
        askers = [threading.Thread(target=ask, args=(peer,), daemon=True) for peer in self.peers if not reached[peer]]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join(max(0.0, end - time.monotonic()))
        while not self.called_by <= self.tried and time.monotonic() < end:  # somebody still calls
            time.sleep(0.05)
        self.doors.close()
        return dict(closed)

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
                return port_probe.knock(self.peers[peer], json.loads(words.readline()), tries)

            found = answers([port for span in spans for port in port_probe.tried(span)], port_probe.TRIES)
            between = [port for span in spans for port in port_probe.edges(span, found)]
            found |= answers(between[: 4 * port_probe.AT_ONCE], 2) if between else {}
            return [list(closed) for span in spans for closed in port_probe.closed_ranges(span, found)]

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
            link: Link = {
                **pings(self.peers[peer]),
                "full_packets": full_packets(self.peers[peer], self.params["mtu"]),
            }
            if self.params["load"]:
                line.sendall(b"flood\n")
                flood(line)
                link["mbit_to"] = float(read_line(line))
                link["mbit_from"] = drain(line)
                line.sendall(f"{link['mbit_from']}\n".encode())
            line.sendall(b"over\n")
            return link

    def follow(self, peer: str) -> Link:
        with self.calls[peer].get(timeout=TURN_S) as line:
            line.settimeout(TURN_S)
            line.sendall(b"ready\n")
            # The route back has its own limit on the size of packets; the rest is the same link.
            link: Link = {"full_packets": full_packets(self.peers[peer], self.params["mtu"])}
            if read_line(line) == "flood":
                line.sendall(f"{drain(line)}\n".encode())
                flood(line)
                read_line(line)
                read_line(line)
            return link


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


if __name__ == "__main__":
    main()
