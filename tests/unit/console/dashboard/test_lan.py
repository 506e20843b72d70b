"""The live page for a whole network: asked for, warned of, and read off the terminal by a telephone."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from console.dashboard import server
from console.dashboard.feed import Feed
from console.dashboard.guard import Guard
from console.inventory.read import Inventory

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
    monkeypatch.setattr(server, "own_addresses", lambda: [OWN])
    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.setattr(Feed, "start", lambda _: None)
    monkeypatch.setattr(server, "from_inventory", lambda _: [])
    assert server.dashboard(Inventory(path=tmp_path), lan=lan) == 0
    said = capsys.readouterr().out
    assert wanted == [lan] and any(host.startswith(OWN) for host in served[0]) is lan
    assert (f"http://{OWN}:" in said) is lan and "http://127.0.0.1:" in said
    assert ("everybody in your network who has this address can read along, and stop the run" in said) is lan
    assert ("▀" in said or "▄" in said) is lan, "a code for a telephone"
