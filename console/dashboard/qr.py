"""An address as a QR code that a telephone reads off the terminal."""

from __future__ import annotations

import segno

QUIET = 2
"""Half of what the standard wants round it: the rest of the terminal is dark or light as well."""


def lines(text: str) -> list[str]:
    """Two rows of modules in a line of half blocks, light on dark: a terminal's own colours do not matter."""
    dark = segno.make_qr(text, error="l").matrix
    size = len(dark)
    rows = range(-QUIET, size + QUIET, 2)

    def light(row: int, column: int) -> bool:
        return not (0 <= row < size and 0 <= column < size and dark[row][column])

    blocks = {(True, True): "█", (True, False): "▀", (False, True): "▄", (False, False): " "}
    return [
        "\x1b[97;40m"
        + "".join(blocks[light(row, column), light(row + 1, column)] for column in range(-QUIET, size + QUIET))
        + "\x1b[0m"
        for row in rows
    ]
