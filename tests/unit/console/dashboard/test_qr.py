"""The code that a telephone reads off the terminal."""

from __future__ import annotations

import hashlib

import pytest

from console.dashboard import qr

ADDRESS = "http://192.168.178.23:7007/?token=" + "0123456789abcdefghijklmnopqrstuvwxyz" * 2


@pytest.mark.parametrize(
    ("length", "size", "made"),
    [
        (17, 21, "a1e09f9dc42a9087"),
        (32, 25, "7892fa2c6ab13e92"),
        (53, 29, "9d10d5e61c27b7b7"),
        (78, 33, "80c6b304f5662392"),
        (106, 37, "267da2c331e1fdc8"),
    ],
)
def test_each_size_is_that_of_another_program(length: int, size: int, made: str) -> None:
    """Of segno 1.6, with the same size, level and mask, on 23 November 2026."""
    found = qr.modules(ADDRESS[:length].encode())
    assert len(found) == size
    assert hashlib.sha256("\n".join("".join(".#"[x] for x in row) for row in found).encode()).hexdigest()[:16] == made


def test_what_is_in_it_is_read_back() -> None:
    """By its way through the square, without the mask; what is left of the room is padding."""
    for length in (1, 18, 60, 77, 105):
        found = qr.modules(ADDRESS[:length].encode())
        free = qr.patterns(len(found), (len(found) - 17) // 4)
        bits = "".join(
            str(int(found[row][column] ^ ((row + column) % 2 == 0)))
            for row, column in qr.way(len(found))
            if free[row][column] is None
        )
        assert bits[:12] == f"0100{length:08b}"
        data = bytes(int(bits[at : at + 8], 2) for at in range(12, 12 + 8 * length, 8))
        assert data.decode() == ADDRESS[:length]


def test_on_a_terminal_two_rows_are_a_line_in_colours_of_its_own() -> None:
    lines = qr.lines(ADDRESS[:60])
    assert len(lines) == (33 + 2 * qr.QUIET + 1) // 2
    assert all(line.startswith("\x1b[97;40m") and line.endswith("\x1b[0m") for line in lines)
    assert {len(line) for line in lines} == {33 + 2 * qr.QUIET + len("\x1b[97;40m\x1b[0m")}
