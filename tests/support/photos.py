"""Pictures of three classes, most of them of its hue, in noise; as bitmaps, which need no library to be written."""

import struct
from pathlib import Path
from random import Random


def write(folder: Path, count: int = 60, edge: int = 16) -> Path:
    random = Random(1)
    for number, name in enumerate(("red", "green", "blue")):
        (folder / name).mkdir(parents=True)
        for one in range(count):
            hue = number if random.random() < 0.7 else random.randrange(3)
            (folder / name / f"{one}.bmp").write_bytes(bitmap(random, hue, edge))
    return folder


def bitmap(random: Random, hue: int, edge: int) -> bytes:
    """`edge` is a multiple of four, so that no line needs filling up."""
    data = bytes(random.randrange(60) + 150 * (colour == hue) for _ in range(edge * edge) for colour in (2, 1, 0))
    head = struct.pack("<2sIHHI", b"BM", 54 + len(data), 0, 0, 54)
    return head + struct.pack("<IiiHHIIiiII", 40, edge, edge, 1, 24, 0, len(data), 0, 0, 0, 0) + data
