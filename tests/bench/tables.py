"""Every table of docs/BENCHMARKS.md of which figures are kept, made again; `make bench` ends with it.

python -m tests.bench.tables
"""

from __future__ import annotations

import sys
from importlib import import_module

from tests.bench import headlines
from tests.bench.__main__ import PARTS
from tests.bench.page import PAGE, kept, taken, with_table


def made(text: str) -> str:
    """The page with its tables as the figures are now."""
    for name in PARTS:
        if found := kept(name):
            text = with_table(text, name, import_module(f"tests.bench.{name}").table(found), taken(name))
    return with_table(text, headlines.NAME, headlines.table(), "")


def main() -> int:
    PAGE.write_text(made(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
