"""`python -m tests.gpu.one NAME PLACE.json OUT.json`: measures one line. What it finds is judged elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.gpu.line import Place
from tests.gpu.lines import LINES
from train.files import write_atomic


def main(name: str, place: str, out: str) -> int:
    given = json.loads(Path(place).read_text())
    where = Place(
        device=given["device"],
        folder=Path(given["folder"]),
        shared=Path(given["shared"]),
        results=Path(given["results"]),
        pair=tuple(given["pair"]),
        inventory=given["inventory"],
        model=given["model"],
    )
    found = LINES[name].measure(where)
    write_atomic(Path(out), json.dumps(found).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
