"""The product with one fault built in: mutants.toml. The simulation proves itself by finding them."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    seed: int
    """Of a story that finds it."""


def known() -> list[Mutant]:
    return [Mutant(**facts) for facts in tomllib.loads((REPOSITORY / "tests/sim/mutants.toml").read_text())["mutant"]]


def named(name: str) -> Mutant:
    found = {mutant.name: mutant for mutant in known()}
    if name not in found:
        raise SystemExit(f"no fault '{name}' in tests/sim/mutants.toml; there are: {', '.join(found)}")
    return found[name]


@contextlib.contextmanager
def applied(mutant: Mutant) -> Iterator[Callable[..., int | None]]:
    """A copy of the product with this fault; called with the words of tests.sim it returns the seed that broke it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copytree(REPOSITORY / "train", root / "train", ignore=shutil.ignore_patterns("__pycache__"))
        (root / "tests").symlink_to(REPOSITORY / "tests")
        file = root / mutant.file
        text = file.read_text()
        assert text.count(mutant.old) == 1, f"{mutant.name}: {mutant.file} has this {text.count(mutant.old)} times"
        file.write_text(text.replace(mutant.old, mutant.new))

        def run(*words: str) -> int | None:
            command = [sys.executable, "-m", "tests.sim", *words]
            said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
            assert said.returncode in (0, 1), said.stderr
            if said.returncode == 0:
                return None
            found = re.match(r"seed (\d+)", said.stdout)
            return int(found[1]) if found else int(words[0])

        yield run
