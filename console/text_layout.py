"""How lines, times and tables look to a person at the controller, and how one is asked for a yes."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from typing import Any

from console.command_line.commands_as_typed import as_typed
from train.safe_stdio import draw, plain

BAR = 24
say = functools.partial(print, flush=True)


GREEN, YELLOW, RED = 32, 33, 31
COLOURS = {"✓": GREEN, "⚡": YELLOW, "⏸": YELLOW, "✗": RED, "!": RED}
"""The colour of a line that begins with one of these marks, and of the mark alone within a line."""
MARKED = re.compile(r"(?m)^[✓⚡⏸✗].*|^! .*|✓|✗( failed)?")


def painted(text: str) -> str:
    return MARKED.sub(lambda found: f"\x1b[{COLOURS[found[0][0]]}m{found[0]}\x1b[0m", text)


def shown_on(stream: Any) -> Callable[[str], str]:
    """How a text is written there: commands as they were typed; in colour on a terminal, unless NO_COLOR is set."""
    colour = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return lambda text: painted(as_typed(plain(text))) if colour else as_typed(plain(text))


def agreed(question: str) -> bool:
    """Whether a person at the terminal says yes; whatever is not a yes is a no, and so is Ctrl-D."""
    try:
        return sys.stdin.isatty() and input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        say()
        return False


def beside_data(*, as_json: bool) -> AbstractContextManager[object]:
    """Where data is printed, what is said to a person goes to the other stream."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


def first(text: str) -> str:
    return (text.strip().splitlines() or ["it exited without an error message"])[0]


def detached(what: str) -> str:
    return f"detached; the {what} continues.   follow: ./motley follow   status: ./motley status   stop: ./motley stop"


def counted(number: int, thing: str) -> str:
    """The number with its thing: 1 node, 2 nodes."""
    return f"{number} {thing}{'s' * (number != 1)}"


def wh_or_kwh(kwh: float) -> str:
    return f"{rounded(kwh, 3)} kWh" if kwh >= 0.1 else f"{rounded(1000 * kwh, 2)} Wh"


def rounded(number: float, digits: int) -> str:
    """So many digits, but never as 1e+02."""
    return f"{float(f'{number:.{digits}g}'):g}"


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


def width() -> int:
    """Characters of a line that a terminal does not break."""
    return shutil.get_terminal_size().columns - 1


def redraw(*lines: str, over: int = 1) -> None:
    """On a terminal: in place of so many lines that stand there, the last of which is not ended yet."""
    clear = "\r\x1b[2K" + "\x1b[A\x1b[2K" * (over - 1)
    draw(clear + "\n".join(plain(line)[: width()] for line in lines), sys.stdout)
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
