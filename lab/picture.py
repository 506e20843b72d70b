"""A recorded run as a picture for the front page: python -m lab.picture RECORD PICTURE ["COMMAND"]

    sudo make demo | tee demo.log && .venv/bin/python -m lab.picture demo.log docs/demo.svg

COMMAND is the first line, where it was another.

Lines are as they were printed. Left out are only repeated progress lines and the details of the plan, as a reader of a
front page has little time; widths are measured in characters of a fixed font, so any viewer shows the same.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

WIDE, CHARACTER, LINE, EDGE = 118, 7.25, 18, 22
FONT = "ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace"
COLOURS = {"⚡": "#f2c94c", "✓": "#7fd1a0", "step": "#8fb8e8", "$": "#ffffff", "learned": "#ffffff"}
QUIET = re.compile(
    r"  (model|data|network|predicted) |shares |sync |starting|waiting|held-out loss|gpu-\S+  (tiny|smollm2|stdlib)"
    r"|.*\(starting\)$"
)


def chosen(lines: list[str]) -> list[str]:
    """From the demo's first line to its last. Of progress, the line before something happens."""
    first = next(number for number, line in enumerate(lines) if line.startswith("motley demo"))
    last = next(number for number, line in enumerate(lines) if line.startswith("next ")) + 1
    kept = [line for line in lines[first:last] if not QUIET.match(line)]
    pairs = zip(kept, [*kept[1:], ""], strict=True)
    return [line for line, after in pairs if not (line.startswith("step ") and after.startswith("step "))]


def drawn(lines: list[str]) -> str:
    high = EDGE * 2 + LINE * len(lines)
    wide = round(EDGE * 2 + WIDE * CHARACTER)
    rows = []
    for number, line in enumerate(lines):
        text = line if len(line) <= WIDE else line[: WIDE - 1] + "…"
        ink = next((colour for word, colour in COLOURS.items() if text.startswith(word)), "#d5dae0")
        words = html.escape(text).replace(" ", "\u00a0")
        long = len(text) * CHARACTER
        at = EDGE + LINE * (number + 0.75)
        if text.strip():
            rows.append(f'<text x="{EDGE}" y="{at:g}" fill="{ink}" textLength="{long:g}">{words}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img">'
        f'<rect width="{wide}" height="{high}" rx="9" fill="#1b1f24" stroke="#3a4048"/>'
        f'<g font-family="{FONT}" font-size="12">{"".join(rows)}</g></svg>\n'
    )


def main() -> int:
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    record, picture = map(Path, sys.argv[1:3])
    command = sys.argv[3] if len(sys.argv) == 4 else "sudo make demo"
    lines = [line.rstrip() for line in record.read_text().splitlines()]
    if not any(line.startswith("next ") for line in lines):
        print(
            f"{record} is no record of a demo that came to its end\nfix: sudo make demo | tee {record}", file=sys.stderr
        )
        return 2
    picture.write_text(drawn([f"$ {command}", *chosen(lines)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
