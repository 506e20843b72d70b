"""Tables in Markdown, and their places on a page: between `<!-- NAME: made by … -->` and `<!-- end of NAME -->`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> list[str]:
    return [line(heads), line(["---"] * len(heads)), *map(line, rows)]


def line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def with_lines(text: str, name: str, lines: Iterable[str]) -> str:
    """The page with these in the place of this name, which it must have."""
    marks = re.compile(rf"(<!-- {re.escape(name)}: [^\n]* -->)\n.*?(<!-- end of {re.escape(name)} -->)", re.DOTALL)
    if not marks.search(text):
        raise SystemExit(f"the page has no place for {name}: <!-- {name}: … --> and <!-- end of {name} -->")
    body = "\n".join(["", "", *lines, "", ""])
    return marks.sub(lambda found: found[1] + body + found[2], text)
