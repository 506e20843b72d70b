# MIT License, see LICENSE
"""Every node listens and calls all others at the same time: who reaches whom on a port."""

from __future__ import annotations

import socket
import threading
import time

HERE, HEARD = b"motley", b"heard"
PATIENCE_S = 3.0
"""A machine under load answers late; nobody waits longer, as others may be asked meanwhile."""


def meet(name: str, port: int, peers: dict[str, str], timeout_s: float) -> tuple[list[str], list[str]]:
    """Which of the others did not answer, and which did not call, until the time is up."""
    end = time.monotonic() + timeout_s
    callers: set[str] = set()
    with socket.create_server(("", port), reuse_port=True) as door:
        threading.Thread(target=listen, args=(door, callers), daemon=True).start()
        missed = call_all(name, peers, port, end)
        # The others may start later than we do: they need somebody to answer.
        while callers != set(peers) and time.monotonic() < end:
            time.sleep(0.05)
    return missed, sorted(set(peers) - callers)


def listen(door: socket.socket, callers: set[str]) -> None:
    """A caller counts once it has our answer: where it gave up it calls again, and we must still be here."""
    while True:
        try:
            caller, _ = door.accept()
        except OSError:
            return
        with caller:
            caller.settimeout(PATIENCE_S)
            try:
                name = caller.recv(255).decode(errors="replace")  # whoever else calls here is none of the peers
                caller.sendall(HERE)
                if caller.recv(16) == HEARD:
                    callers.add(name)
            except OSError:
                continue


def call_all(name: str, peers: dict[str, str], port: int, end: float) -> list[str]:
    """Names of those that did not answer until the end."""
    left = dict(peers)
    while left and time.monotonic() < end:
        left = {peer: address for peer, address in left.items() if not call(name, address, port)}
        time.sleep(0.1 if left else 0)
    return sorted(left)


def call(name: str, address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=PATIENCE_S) as line:
            line.sendall(name.encode())
            is_there = line.recv(16) == HERE
            line.sendall(HEARD if is_there else b"")
            return is_there
    except OSError:
        return False
