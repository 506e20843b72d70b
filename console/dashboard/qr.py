"""An address as a QR code that a telephone reads off the terminal: bytes, error correction L, one block (ISO 18004).

Up to 106 bytes are enough for any address of the live page, so none of the larger sizes with several blocks is here.
"""

from __future__ import annotations

from collections.abc import Iterator

DATA = {1: 19, 2: 34, 3: 55, 4: 80, 5: 108}
"""Bytes of data by version; the next line: bytes of error correction."""
CHECK = {1: 7, 2: 10, 3: 15, 4: 20, 5: 26}
QUIET = 2
"""Half of what the standard wants round it: the rest of the terminal is dark or light as well."""
FORMAT = 0b111011111000100
"""Level L with mask 0, error-corrected and masked as the standard has it."""

Square = list[list[bool | None]]


def lines(text: str) -> list[str]:
    """Two rows of modules in a line of half blocks, light on dark: a terminal's own colours do not matter."""
    dark = modules(text.encode())
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


def modules(data: bytes) -> list[list[bool]]:
    version = next(version for version, room in DATA.items() if len(data) + 2 <= room)
    square = patterns(17 + 4 * version, version)
    free = [[module is None for module in row] for row in square]
    bits = bits_of(data, version)
    for row, column in way(len(square)):
        if free[row][column]:
            square[row][column] = next(bits, False) ^ ((row + column) % 2 == 0)
    return [[bool(module) for module in row] for row in square]


def bits_of(data: bytes, version: int) -> Iterator[bool]:
    """Mode and length, the bytes, padding, error correction."""
    room = DATA[version]
    number = (0b0100 << 8 | len(data)) << 8 * len(data) | int.from_bytes(data)
    whole = (number << 4).to_bytes(len(data) + 2)
    padded = whole + bytes((0xEC, 0x11)[place % 2] for place in range(room - len(whole)))
    for byte in padded + check(padded, CHECK[version]):
        yield from (bool(byte >> bit & 1) for bit in range(7, -1, -1))


# -- error correction ------------------------------------------------------------------------------------------------


def check(data: bytes, count: int) -> bytes:
    """Reed and Solomon's: the remainder by the generator of that degree, over GF(256) of the polynomial 0x11d."""
    generator = [1]
    for power in range(count):
        root = exponent(power)
        generator = [a ^ times(b, root) for a, b in zip([*generator, 0], [0, *generator], strict=True)]
    rest = [*data, *[0] * count]
    for place in range(len(data)):
        if factor := rest[place]:
            for offset, value in enumerate(generator):
                rest[place + offset] ^= times(value, factor)
    return bytes(rest[-count:])


def exponent(power: int) -> int:
    value = 1
    for _ in range(power):
        value = value << 1 ^ (0x11D if value & 0x80 else 0)
    return value


def times(a: int, b: int) -> int:
    product = 0
    while b:
        product ^= a if b & 1 else 0
        a, b = a << 1 ^ (0x11D if a & 0x80 else 0), b >> 1
    return product


# -- the square ------------------------------------------------------------------------------------------------------


def patterns(size: int, version: int) -> Square:
    """What every code of this size has: three corners, a fourth mark, two dotted lines, the format."""
    square: Square = [[None] * size for _ in range(size)]
    for top, left in ((0, 0), (0, size - 7), (size - 7, 0)):
        for row in range(max(0, top - 1), min(size, top + 8)):
            for column in range(max(0, left - 1), min(size, left + 8)):
                ring = max(abs(row - top - 3), abs(column - left - 3))
                square[row][column] = ring not in (2, 4)
    if version > 1:
        for row in range(size - 9, size - 4):
            for column in range(size - 9, size - 4):
                square[row][column] = max(abs(row - size + 7), abs(column - size + 7)) != 1
    for place in range(8, size - 8):
        square[6][place] = square[place][6] = place % 2 == 0
    mark_format(square, size)
    return square


def mark_format(square: Square, size: int) -> None:
    """Twice, and the module that is always dark."""
    for bit in range(15):
        value = bool(FORMAT >> bit & 1)
        square[bit if bit < 6 else bit + 1 if bit < 8 else size - 15 + bit][8] = value
        square[8][size - 1 - bit if bit < 8 else 7 if bit == 8 else 14 - bit] = value
    square[size - 8][8] = True


def way(size: int) -> Iterator[tuple[int, int]]:
    """In pairs of columns from the right, up and down in turns, past the dotted line."""
    up = True
    for right in [*range(size - 1, 6, -2), 5, 3, 1]:
        for row in range(size - 1, -1, -1) if up else range(size):
            yield row, right
            yield row, right - 1
        up = not up
