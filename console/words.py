"""How lines, times and tables look to a person at the controller."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from train.safe_stdio import draw, plain

BAR = 24
say = functools.partial(print, flush=True)


def first(text: str) -> str:
    return (text.strip().splitlines() or ["it exited without an error message"])[0]


def counted(number: int, thing: str) -> str:
    """1 node, 2 nodes."""
    return f"{number} {thing}{'s' * (number != 1)}"


def wh_or_kwh(kwh: float) -> str:
    return f"{kwh:.3g} kWh" if kwh >= 0.1 else f"{1000 * kwh:.2g} Wh"


def clock(seconds: float) -> str:
    hours, rest = divmod(int(max(0, seconds)), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def progress_bar(part: float) -> str:
    filled = round(min(1.0, part) * BAR)
    return "━" * filled + "─" * (BAR - filled)


def redraw(line: str) -> None:
    """On a terminal: in place of the line that stands there, which is not ended yet."""
    draw(f"\r\x1b[2K{plain(line)[: shutil.get_terminal_size().columns - 1]}", sys.stdout)
    sys.stdout.flush()


@contextmanager
def in_place() -> Iterator[Callable[[str], None]]:
    """Shows a line that the next one replaces and that is gone at the end; nothing where nobody watches a terminal."""
    show = redraw if sys.stdout.isatty() else lambda _: None
    try:
        yield show
    finally:
        show("")


def drawn(table: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row, in columns as wide as they need."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    ]
