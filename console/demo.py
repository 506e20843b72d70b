"""./motley demo: the lab's own command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn


def demo(*, recipe: str, fast: bool, folders: bool, infra: str, rent: str, base: str) -> NoReturn:
    given = {"recipe": recipe, "base": base, "infra": infra, "rent": rent}
    named = [word for name, value in given.items() if value for word in (f"--{name}", value)]
    words = [*(["--fast"] * fast), *(["--folders"] * folders), *named]
    os.chdir(Path(__file__).parents[1])
    os.execv(sys.executable, [sys.executable, "-m", "lab", "demo", *words])
