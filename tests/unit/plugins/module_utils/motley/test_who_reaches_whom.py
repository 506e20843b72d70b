"""Each node leaves only when all others have its answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from plugins.module_utils.motley import who_reaches_whom

OURS, THEIRS = "127.0.0.1", "127.0.0.2"


@pytest.fixture
def peer() -> Iterator[int]:
    """Another node that answers; the port of both."""
    with socket.create_server((THEIRS, 0), reuse_port=True) as door:
        threading.Thread(target=who_reaches_whom.listen, args=(door, set()), daemon=True).start()
        yield door.getsockname()[1]


def meets(port: int, found: list[tuple[list[str], list[str]]], timeout_s: float) -> threading.Thread:
    thread = threading.Thread(
        target=lambda: found.append(who_reaches_whom.meet("we", port, {"they": THEIRS}, timeout_s))
    )
    thread.start()
    return thread


def until_called(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection((OURS, port), timeout=5)
        except OSError:
            continue


def test_who_gave_up_before_the_answer_is_still_waited_for(peer: int) -> None:
    found: list[tuple[list[str], list[str]]] = []
    thread = meets(peer, found, 20)
    with until_called(peer) as line:
        line.sendall(b"they")
        line.recv(16)  # and gives up before it could say so
    thread.join(0.5)
    assert thread.is_alive() and who_reaches_whom.call("they", OURS, peer)
    thread.join(10)
    assert found == [([], [])]


def test_who_answers_and_never_calls_is_told_of(peer: int) -> None:
    found: list[tuple[list[str], list[str]]] = []
    meets(peer, found, 0.5).join(10)
    assert found == [([], ["they"])]


def test_a_caller_that_is_no_node_keeps_nobody_from_an_answer(peer: int) -> None:
    """As a scanner of the LAN, or a browser that tries TLS."""
    with socket.create_connection((THEIRS, peer), timeout=5) as line:
        line.sendall(b"\x16\x03\x01\xff")
        line.recv(16)
    assert who_reaches_whom.call("we", THEIRS, peer)
