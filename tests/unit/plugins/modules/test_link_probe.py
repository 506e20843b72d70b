"""What a node measures of its links, where the talk about it does not come about."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from plugins.module_utils.motley import ping
from plugins.modules import link_probe

MEASURED = {"rtt_ms": 1.0, "jitter_ms": 0.1, "loss_percent": 21.0}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> link_probe.Here:
    monkeypatch.setattr(link_probe, "pings", lambda address: MEASURED)
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    nodes = {"a": "127.0.0.1", "b": "127.0.0.1"}
    params: dict[str, Any] = {"name": "a", "nodes": nodes, "port": port, "ports": [], "load": True, "mtu": 1500}
    return link_probe.Here(params)


def test_losses_are_measured_where_they_break_the_talk_off(here: link_probe.Here) -> None:
    assert here.turn("b", starts=True, answers=True) == MEASURED


def test_a_node_that_never_answered_is_not_called_lossy(here: link_probe.Here) -> None:
    assert here.turn("b", starts=True, answers=False) == {}
    assert here.turn("b", starts=False, answers=True) == {}


def test_an_answer_to_a_ping_is_known_by_its_number_with_and_without_an_ip_head() -> None:
    asked = ping.echo(7)
    answer = bytes([ping.ECHO_REPLY]) + asked[1:]
    head = bytes([0x45, *[0] * 8, socket.IPPROTO_ICMP, *[0] * 10])
    assert [ping.number_of(packet) for packet in (answer, head + answer, asked, b"")] == [7, 7, 0, 0]
