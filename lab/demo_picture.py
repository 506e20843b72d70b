"""A recorded run as a picture for the front page: python -m lab.demo_picture RECORD PICTURE ["COMMAND"]

    sudo ./motley demo | tee demo.log && .venv/bin/python -m lab.demo_picture demo.log docs/demo.svg

COMMAND is the first line, where it was another.

Lines are as they were printed, in the colours of a terminal. Left out are only repeated progress lines and the details
of the plan, as a reader of a front page has little time; widths are measured in characters of a fixed font, so any
viewer shows the same.
"""

from __future__ import annotations

import html
import re
import sys
import textwrap
from itertools import groupby
from pathlib import Path

WIDE, CHARACTER, LINE, EDGE = 118, 7.25, 18, 22
FONT = "ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace"
NO_BREAK = "\u00a0"
GROUND = "#1b1f24"
"""Drawn with the picture: it looks the same on a light page and on a dark one."""
PLAIN, WHITE, GREY, GREEN, YELLOW, RED, BLUE = "#d5dae0 #ffffff #9aa4ae #7fd1a0 #f2c94c #ff9a8d #8fb8e8".split()
COLOURS = [
    (re.compile(r"^\$ .*"), WHITE),
    (re.compile(r"^motley demo"), WHITE),
    (re.compile(r"^⚡.*"), YELLOW),
    (re.compile(r"^✓.*"), GREEN),
    (re.compile(r"^[✗!] .*"), RED),
    (re.compile(r"^(plan|step) .*"), BLUE),
    (re.compile(r"^ {2}(tools|machines|bootstrap|training|answers|report)(?= )"), BLUE),
    (re.compile(r"^(done|loss|survived|balanced|learned|adapter|report|stays|next)(?= {2})"), GREEN),
    (re.compile(r"(?<= )(after .*\(right\)|✓)"), GREEN),
    (re.compile(r"(?<= )before  .*"), GREY),
    (re.compile(r" {3}(\d+\.\d s|\(.*\))$"), GREY),
]
QUIET = re.compile(
    r"  (model|data|decided|network|predicted) |shares |sync |starting|waiting|held-out loss"
    r"|gpu-\S+  (tiny|smollm2|stdlib)|.*\(starting\)$"
)


def chosen(lines: list[str]) -> list[str]:
    """From the demo's first line to its last. Of progress, the line before something happens."""
    first = next(number for number, line in enumerate(lines) if line.startswith("motley demo"))
    last = next(number for number, line in enumerate(lines) if line.startswith("next ")) + 1
    kept = [line for line in lines[first:last] if not QUIET.match(line)]
    pairs = zip(kept, [*kept[1:], ""], strict=True)
    return [line for line, after in pairs if not (line.startswith("step ") and after.startswith("step "))]


def wrapped(line: str) -> list[str]:
    """What is wider than the picture continues below its own words."""
    words = re.match(r"\S* +(?=\S)| *", line)
    under = " " * min(WIDE // 3, len(words[0]) if words else 0)
    return textwrap.wrap(line, WIDE, subsequent_indent=under, break_long_words=True, drop_whitespace=True) or [""]


def coloured(line: str) -> list[tuple[int, str, str]]:
    """Column, colour and words of each part; where two colours fit, the first."""
    inks = [PLAIN] * len(line)
    for words, colour in COLOURS:
        for found in words.finditer(line):
            span = slice(found.start(), found.end())
            inks[span] = [colour if ink == PLAIN else ink for ink in inks[span]]
    parts, column = [], 0
    for ink, run in groupby(inks):
        whole = line[column : column + len(list(run))]
        if whole.strip():
            parts.append((column + len(whole) - len(whole.lstrip()), ink, whole.strip()))
        column += len(whole)
    return parts


def drawn(lines: list[str]) -> str:
    """Each part at its own column: viewers differ in which spaces they keep."""
    lines = [part for line in lines for part in wrapped(line)]
    high = EDGE * 2 + LINE * len(lines)
    wide = round(EDGE * 2 + WIDE * CHARACTER)
    rows = []
    for number, line in enumerate(lines):
        at = EDGE + LINE * (number + 0.75)
        for column, ink, part in coloured(line):
            place = f'x="{EDGE + CHARACTER * column:g}" y="{at:g}" textLength="{len(part) * CHARACTER:g}"'
            rows.append(f'<text {place} fill="{ink}">{html.escape(part).replace(" ", NO_BREAK)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img">'
        f"<title>A recorded demo: {html.escape(lines[0])}</title>"
        f'<rect width="{wide}" height="{high}" rx="9" fill="{GROUND}" stroke="#3a4048"/>'
        f'<g font-family="{FONT}" font-size="12">{"".join(rows)}</g></svg>\n'
    )


def main() -> int:
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    record, picture = map(Path, sys.argv[1:3])
    command = sys.argv[3] if len(sys.argv) == 4 else "sudo ./motley demo"
    lines = [line.rstrip() for line in record.read_text().splitlines()]
    if not any(line.startswith("next ") for line in lines):
        print(
            f"{record} is no record of a demo that came to its end\nfix: sudo ./motley demo | tee {record}",
            file=sys.stderr,
        )
        return 2
    picture.write_text(drawn([f"$ {command}", *chosen(lines)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
