"""Figures of a bench that is run piece by piece: kept between the pieces, and the table made of all of them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.cluster import REPOSITORY

PAGE = REPOSITORY / "docs/BENCHMARKS.md"


class Kept:
    def __init__(self, name: str) -> None:
        self.name = name
        self.file: Path = REPOSITORY / ".motley/bench" / f"{name}.json"

    def all(self) -> dict[str, list[Any]]:
        return dict(json.loads(self.file.read_text())) if self.file.exists() else {}

    def add(self, part: str, figures: Any) -> None:
        print(f"{part}: {figures}", flush=True)
        everything = self.all()
        everything.setdefault(part, []).append(figures)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(everything))

    def forget(self) -> None:
        self.file.unlink(missing_ok=True)

    def write(self, lines: Sequence[str]) -> None:
        """Between this bench's two marks of the page."""
        first, last = f"<!-- {self.name}: made by make bench-{self.name} -->", f"<!-- end of {self.name} -->"
        before, rest = PAGE.read_text().split(first)
        after = rest.split(last)[1]
        taken = time.strftime("Taken on %d %B %Y.")
        PAGE.write_text("\n".join([before + first, "", taken, "", *lines, "", last]) + after)
        print("\n".join(lines))
