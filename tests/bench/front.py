"""What other pages say of speed, from the figures of `turns`: the middle one of all turns, so that a sentence adds up.

`python -m tests.bench.tables` makes them: README.md, docs/questions.md, the first lines of docs/BENCHMARKS.md, and
docs/shares.svg.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.bench.page import PAGE, kept
from tests.support.cluster import REPOSITORY

NAME, ROWS = "speed", "24"
SECTION = "BENCHMARKS.md#how-near-to-their-sum"
PICTURE = REPOSITORY / "docs/shares.svg"
NAMES = ("gpu-master", "gpu-worker-1", "gpu-worker-2")


@dataclass(frozen=True)
class Middle:
    """The figure as a page shows it: what is said of these figures is computed from them."""

    alone: tuple[float, ...]
    together: float
    rows: tuple[int, ...]

    @property
    def sum(self) -> float:
        return round(sum(self.alone), 1)

    @property
    def even(self) -> float:
        """The most that equal shares allow: all wait for the slowest."""
        return round(len(self.alone) * min(self.alone), 1)

    @property
    def speeds(self) -> str:
        *first, last = map(str, self.alone)
        return f"{', '.join(first)} and {last}"

    @property
    def reached(self) -> str:
        """The sentences that every page has, without the last full stop."""
        return (
            f"alone, three simulated machines train {self.speeds} rows a second. Together they train {self.together}, "
            f"{self.together / max(self.alone):.2f} times the fastest one"
        )

    @property
    def of_sum(self) -> str:
        return f"That is {self.together / self.sum:.0%} of the sum of their speeds ({self.sum})".replace("%", " %")

    @property
    def over_even(self) -> str:
        return f"{self.together / self.even:.1f} times"


def middle() -> Middle:
    runs = kept("turns")[ROWS]
    turns = sorted((run["of the sum"][i], run["auto"][i], run["alone"][i], run["rows"][i])
                   for run in runs for i in range(len(run["auto"])))  # fmt: skip
    _, together, alone, rows = turns[len(turns) // 2]
    return Middle(tuple(round(rate, 1) for rate in alone), round(together, 1), tuple(rows))


def readme(found: Middle) -> str:
    rows = ", ".join(map(str, found.rows[:-1]))
    return paragraphs(
        f"**{capital(found.reached)}** ([benchmarks](docs/{SECTION})). {found.of_sum}. With equal shares "
        f"all would wait for the slowest: at most 3 × {min(found.alone)} = {found.even}, calculated and not measured. "
        f"Shares by speed are {found.over_even} as fast. A *row* is a piece of training text, a *step* one update of "
        "the model.",
        f"![One step of {ROWS} rows. With 8 rows each, the fast machines wait for the slowest. With {rows} and "
        f"{found.rows[-1]} rows, all three finish together.](docs/shares.svg)",
    )


def questions(found: Middle) -> str:
    return paragraphs(
        f"Often, but not always. {capital(found.reached)} ([how it was measured]({SECTION})). {found.of_sum}."
    )


def in_two_minutes(found: Middle) -> str:
    link = f"[unequal machines](#{SECTION.partition('#')[2]})"
    said = f"- **Speed**: {found.reached}. {found.of_sum}, and {found.over_even} what equal shares allow ({link})."
    return textwrap.fill(said, 140, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


PAGES: dict[Path, Callable[[Middle], str]] = {
    REPOSITORY / "README.md": readme,
    REPOSITORY / "docs/questions.md": questions,
    PAGE: in_two_minutes,
}


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def paragraphs(*texts: str) -> str:
    return "\n\n".join(
        text if text.startswith("![") else textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)
        for text in texts
    )


LOOK = """
  text { font: 14px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .head { font-weight: 600; font-size: 16px } .soft { fill: #59636e } .in { fill: #ffffff; font-weight: 600 }
  .card { fill: #f6f8fa; stroke: #d1d9e0 } .a { fill: #0b62c4 } .b { fill: #1a7f37 } .c { fill: #8f3d00 }
  .wait { fill: none; stroke: #8c959f; stroke-dasharray: 4 4 } .end { stroke: #1f2328; stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .soft { fill: #9da7b1 } .in { fill: #0d1117 }
    .card { fill: #161b22; stroke: #3d444d } .a { fill: #6cb6ff } .b { fill: #57c26c } .c { fill: #f0a35e }
    .wait { stroke: #7d8590 } .end { stroke: #e6edf3 }
  }
"""
LEFT, WIDTH, LINE = 220, 560, 32
EACH = int(ROWS) // len(NAMES)


def picture(found: Middle) -> str:
    """One step with equal shares and one with Motley's; each machine's bar is as long as it computes."""
    alike = (EACH,) * len(NAMES)
    even, ours = (max(n / rate for n, rate in zip(rows, found.alone, strict=True)) for rows in (alike, found.rows))
    shares = f"{', '.join(map(str, found.rows[:-1]))} and {found.rows[-1]}"
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 330" role="img" aria-labelledby="t d">',
        f'<title id="t">One step of {ROWS} rows on three unequal machines</title>',
        f'<desc id="d">Alone they make {found.speeds} rows a second. With {EACH} rows each the slowest needs '
        f"{even:.1f} seconds and the others wait. With {shares} rows all end after {ours:.1f} seconds.</desc>",
        f"<style>{LOOK}</style>",
        '<rect class="card" x=".5" y=".5" width="859" height="329" rx="9"/>',
        *step("Equal shares: everyone waits for the slowest", 34, alike, found.alone, f"{even:.1f} s"),
        *step("Motley's shares: all end at about the same time", 188, found.rows, found.alone,
              f"{ours:.1f} s, and the next step begins"),
        f'<text class="soft" x="24" y="316">One step of {ROWS} rows, computed from the measured speed of each '
        "simulated machine, without the network.</text>",
        "</svg>",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def step(title: str, top: int, rows: tuple[int, ...], alone: tuple[float, ...], took: str) -> list[str]:
    scale = WIDTH * min(alone) / EACH
    widths = [round(scale * n / rate) for n, rate in zip(rows, alone, strict=True)]
    end = LEFT + max(widths)
    lines = [f'<text class="head" x="24" y="{top}">{title}</text>']
    for i, (name, width) in enumerate(zip(NAMES, widths, strict=True)):
        y, right = top + 31 + LINE * i, LEFT + width
        lines += [
            f'<text x="24" y="{y}">{name}</text><text class="soft" x="122" y="{y}">{alone[i]} rows/s</text>',
            f'<rect class="{"abc"[i]}" x="{LEFT}" y="{y - 17}" width="{width}" height="24" rx="3"/>'
            f'<text class="in" x="{LEFT + 10}" y="{y}">{rows[i]} rows</text>',
        ]
        if end - right > 80:
            wait = f'x="{right + 2}" y="{y - 16}" width="{end - right - 3}" height="22" rx="3"'
            lines.append(f'<rect class="wait" {wait}/><text class="soft" x="{right + 14}" y="{y}">waits</text>')
    return [*lines, f'<path class="end" d="M{end} {top + 8}v100"/><text x="{end + 8}" y="{top + 63}">{took}</text>']
