"""The code that a telephone reads off the terminal."""

from __future__ import annotations

import segno

from console.dashboard import qr

ADDRESS = "http://192.168.178.23:7007/?token=" + "0123456789abcdefghijklmnopqrstuvwxyz" * 2
HALVES = {"█": (0, 0), "▀": (0, 1), "▄": (1, 0), " ": (1, 1)}


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
