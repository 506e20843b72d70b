"""`python -m tests.gpu.one NAME PLACE.json OUT.json`: measures one line. What it finds is judged elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.gpu.line import Place
from tests.gpu.lines import LINES
from train.files import write_atomic


def main(name: str, place: str, out: str) -> int:
    found = LINES[name].measure(Place.read(Path(place)))
    write_atomic(Path(out), json.dumps(found).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
