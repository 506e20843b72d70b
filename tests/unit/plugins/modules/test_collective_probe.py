"""Why the nodes do not compute together: the port of the first one is taken, or nobody answers there."""

from __future__ import annotations

import socket
import threading

import pytest

from plugins.modules import collective_probe

TIMED_OUT = "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect"


@pytest.fixture
def door() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def test_a_port_that_stays_taken_is_said_with_who_has_it(door: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective_probe, "FREE_WITHIN_S", 0.0)
    with door:
        port = door.getsockname()[1]
        assert not collective_probe.comes_free(port)
    said = collective_probe.taken(port, [("0.0.0.0", port, "jupyter"), ("0.0.0.0", 80, "nginx")])
    assert said.startswith(f"port {port} is taken there by jupyter, ") and "\nfix: end that program" in said
    assert collective_probe.taken(port, []).startswith(f"port {port} is taken there, ")


def test_a_port_that_is_taken_for_a_moment_is_waited_for(door: socket.socket) -> None:
    port = door.getsockname()[1]
    threading.Timer(0.3, door.close).start()
    assert collective_probe.comes_free(port)


def test_a_worker_says_where_nobody_answered_and_the_first_node_its_own_error() -> None:
    assert collective_probe.why(TIMED_OUT, "10.0.0.1", 29891).startswith("nobody answered at port 29891 of 10.0.0.1")
    assert "RuntimeError: no space" in collective_probe.why("a\nRuntimeError: no space", "10.0.0.1", 29891)
