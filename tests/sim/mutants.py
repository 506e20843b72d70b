"""The product with one fault built in: mutants.toml, and pool_mutants.toml for a run in pieces. The simulation proves itself by finding them."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
FIRST_BROKEN = """
import sys
from importlib import import_module
first_broken = import_module(sys.argv[1]).first_broken
print(*(first_broken(range(*map(int, sys.argv[2:]))) or ())[:1])
"""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    seed: int
    """Of a story that finds it."""


def known(file: str = "mutants.toml") -> list[Mutant]:
    return [Mutant(**facts) for facts in tomllib.loads((REPOSITORY / "tests/sim" / file).read_text())["mutant"]]


def named(name: str, file: str = "mutants.toml") -> Mutant:
    found = {mutant.name: mutant for mutant in known(file)}
    if name not in found:
        raise SystemExit(f"no fault '{name}' in tests/sim/{file}; there are: {', '.join(found)}")
    return found[name]


@contextlib.contextmanager
def applied(mutant: Mutant, stories: str = "tests.sim.search") -> Iterator[Callable[[range], int | None]]:
    """A copy of the product with this fault; called with seeds it returns the first that breaks it. `stories`: the
    module that plays them."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copytree(REPOSITORY / "train", root / "train", ignore=shutil.ignore_patterns("__pycache__"))
        (root / "tests").symlink_to(REPOSITORY / "tests")
        file = root / mutant.file
        text = file.read_text()
        assert text.count(mutant.old) == 1, f"{mutant.name}: {mutant.file} has this {text.count(mutant.old)} times"
        file.write_text(text.replace(mutant.old, mutant.new))

        def breaks(seeds: range) -> int | None:
            command = [sys.executable, "-c", FIRST_BROKEN, stories, str(seeds.start), str(seeds.stop)]
            said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
            assert said.returncode == 0, said.stderr
            return int(said.stdout) if said.stdout.strip() else None

        yield breaks
