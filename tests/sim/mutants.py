"""The product with one fault built in, of KIND_mutants.toml. The simulation proves itself by finding them."""

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

from tests.support import ROOT

FIRST_BROKEN = """
import sys
from tests.sim.search import KINDS, first_broken
found = first_broken(KINDS[sys.argv[1]], range(*map(int, sys.argv[2:])))
print("" if found is None else found)
"""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    kind: str
    """Of the stories that find it."""
    name: str
    file: str
    old: str
    new: str
    seed: int
    """Of a story that finds it."""


def known(kind: str) -> list[Mutant]:
    files = tomllib.loads((ROOT / f"tests/sim/{kind}_mutants.toml").read_text())
    return [Mutant(kind=kind, file=file, name=name, **fault) for file in files for name, fault in files[file].items()]


def named(kind: str, name: str) -> Mutant:
    found = {mutant.name: mutant for mutant in known(kind)}
    if name not in found:
        raise SystemExit(f"no fault '{name}' in tests/sim/{kind}_mutants.toml; there are: {', '.join(found)}")
    return found[name]


@contextlib.contextmanager
def applied(mutant: Mutant) -> Iterator[Callable[[range], int | None]]:
    """A copy of the product with this fault; called with seeds it returns the first that breaks it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copytree(ROOT / "train", root / "train")  # what is compiled, too
        (root / "tests").symlink_to(ROOT / "tests")
        file = root / mutant.file
        text = file.read_text()
        assert text.count(mutant.old) == 1, f"{mutant.name}: {mutant.file} has this {text.count(mutant.old)} times"
        file.write_text(text.replace(mutant.old, mutant.new))

        def breaks(seeds: range) -> int | None:
            command = [sys.executable, "-c", FIRST_BROKEN, mutant.kind, str(seeds.start), str(seeds.stop)]
            said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
            assert said.returncode == 0, said.stderr
            return int(said.stdout) if said.stdout.strip() else None

        yield breaks
