"""Every table of docs/BENCHMARKS.md of which figures are kept, made again, and what other pages say of speed;
`make bench` ends with it.

python -m tests.bench.tables
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from tests.bench import front, headlines
from tests.bench.__main__ import PARTS
from tests.bench.page import PAGE, kept, taken, with_table


def made(text: str) -> str:
    """The page with its tables as the figures are now."""
    for name in PARTS:
        if found := kept(name):
            text = with_table(text, name, import_module(f"tests.bench.{name}").table(found), taken(name))
    return with_table(text, headlines.NAME, headlines.table(), "")


def with_speed(page: Path, text: str, found: front.Middle) -> str:
    return with_table(text, front.NAME, front.PAGES[page](found).splitlines(), "")


def main() -> int:
    PAGE.write_text(made(PAGE.read_text()))
    found = front.middle()
    for page in front.PAGES:
        page.write_text(with_speed(page, page.read_text(), found))
    front.PICTURE.write_text(front.picture(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
