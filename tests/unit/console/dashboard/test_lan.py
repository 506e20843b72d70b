"""The live page for a whole network: asked for, warned of, and read off the terminal by a telephone."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest

from console.dashboard import server
from console.dashboard.feed import Feed
from console.dashboard.guard import Guard
from console.inventory.read import Inventory
from train.errors import BadInput

OWN = "192.0.2.7"


@pytest.mark.parametrize("lan", [False, True])
def test_only_where_it_is_asked_for(
    lan: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served: list[Sequence[str]] = []
    wanted: list[bool] = []

    def listening(port: int, *, lan: bool) -> socket.socket:
        wanted.append(lan)
        place = socket.socket()
        place.bind(("127.0.0.1", port))
        return place

    async def serve(app: Guard, _: server.Dashboard, place: socket.socket) -> None:
        served.append(sorted(app.hosts))
        place.close()

    monkeypatch.setattr(server, "listening", listening)
    monkeypatch.setattr(server, "own_addresses", lambda _: [OWN])
    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.setattr(Feed, "start", lambda _: None)
    monkeypatch.setattr(server, "from_inventory", lambda _: [])
    assert server.dashboard(Inventory(path=tmp_path), lan=lan) == 0
    said = capsys.readouterr().out
    assert wanted == [lan] and any(host.startswith(OWN) for host in served[0]) is lan
    assert (f"http://{OWN}:" in said) is lan and "http://127.0.0.1:" in said
    assert ("everybody in your network who has this address can read along, and stop the run" in said) is lan
    assert ("▀" in said or "▄" in said) is lan, "a code for a telephone"


class Probe:
    """A socket of a machine whose network has no router: it leads to 192.168.9.0/24 and to itself."""

    def __init__(self, *_: int) -> None:
        self.leaves_by = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def connect(self, where: tuple[str, int]) -> None:
        network = where[0].rpartition(".")[0]
        if network not in ("192.168.9", "127.0.0"):
            raise OSError(errno.ENETUNREACH, "Network is unreachable")
        self.leaves_by = f"{network}.1"

    def getsockname(self) -> tuple[str, int]:
        return self.leaves_by, 9


def test_without_a_router_the_address_is_that_of_the_nodes_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.socket, "socket", Probe)
    nodes = {"a": {"motley_address": "192.168.9.11"}, "here": {"motley_address": "127.0.0.1"}, "pods": {}}
    assert server.own_addresses(nodes) == ["192.168.9.1"]
    with pytest.raises(BadInput, match="in no network"):
        server.own_addresses({})
