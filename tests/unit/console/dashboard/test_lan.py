"""The live page for a whole network: asked for, warned of, read off the terminal by a telephone, and its cookie."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest
import segno

from console.dashboard import qr, server
from console.dashboard.feed import Feed
from console.dashboard.guard import Guard, cookie
from console.inventory.read import Inventory
from tests.support import pace
from train.errors import BadInput

OWN = "192.0.2.7"
ADDRESS = "http://192.168.178.23:7007/?token=" + "0123456789abcdefghijklmnopqrstuvwxyz" * 2
HALVES = {"█": (0, 0), "▀": (0, 1), "▄": (1, 0), " ": (1, 1)}


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


def test_on_a_terminal_two_rows_are_a_line_in_colours_of_its_own() -> None:
    lines = qr.lines(ADDRESS[:60])
    code = segno.make_qr(ADDRESS[:60], error="l").matrix
    assert all(line.startswith("\x1b[97;40m") and line.endswith("\x1b[0m") for line in lines)
    shown = [line.removeprefix("\x1b[97;40m").removesuffix("\x1b[0m") for line in lines]
    dark = [[HALVES[block][half] for block in line] for line in shown for half in (0, 1)]
    inner = [row[qr.QUIET : -qr.QUIET] for row in dark[qr.QUIET : qr.QUIET + len(code)]]
    assert inner == [list(row) for row in code]
    assert not any(dark[0]) and not any(row[0] or row[-1] for row in dark), "quiet round it"


def test_any_length_of_an_address_has_room() -> None:
    assert all(qr.lines(ADDRESS + "a" * length) for length in (1, 100, 500))


def test_of_two_cookies_the_nearer_folders_counts_and_a_long_one_delays_nobody() -> None:
    assert cookie("a=b; motley=mine; motley=other") == "mine"
    began = time.monotonic()
    assert cookie('motley="' + "\\" * 30_000 + '"; x') != ""
    assert time.monotonic() - began < pace.seconds(0.2)
