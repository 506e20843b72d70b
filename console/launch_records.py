"""What was launched from here, by this computer's own record: .motley/runs/RUN.json, as the nodes' launch.json."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from console.render import File
from train.files import write_atomic
from train.runlog.paths import LAUNCH

FOLDER = "runs"


def keep(files: Iterable[File], state: Path) -> None:
    """Keeps the files of a launch that say what was launched."""
    for file in files:
        if Path(file.path).name == LAUNCH:
            write_atomic(state / FOLDER / f"{Path(file.path).parent.name}.json", file.content.encode(), mode=0o600)


def known(state: Path) -> dict[str, Any]:
    found = {}
    for file in (state / FOLDER).glob("*.json"):
        with contextlib.suppress(OSError, ValueError):
            found[file.stem] = json.loads(file.read_text())
    return found
