"""A text of some size that is on every machine: what Python's own manual and library ship with. In Python's environment
that trains, so that it is that Python's."""

from __future__ import annotations

import ast
import os
import pydoc_data.topics
from collections.abc import Iterator
from pathlib import Path


def write(folder: str, characters: int) -> None:
    """One file for each topic or module, until there are so many characters."""
    Path(folder).mkdir(parents=True)
    for name, text in documents():
        kept = text[:characters]
        Path(folder, f"{name}.txt").write_text(kept)
        characters -= len(kept)
        if characters <= 0:
            return


def documents() -> Iterator[tuple[str, str]]:
    for name, text in sorted(pydoc_data.topics.topics.items()):
        yield f"topic-{name}", text
    library = Path(os.__file__).parent
    for file in sorted(library.rglob("*.py")):
        below = file.relative_to(library)
        if "site-packages" in below.parts or "test" in below.parts:
            continue
        if text := "\n\n".join(docstrings(file)):
            yield "module-" + "-".join(below.with_suffix("").parts), text


def docstrings(file: Path) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_text())
    except (SyntaxError, UnicodeDecodeError):  # the library keeps some on purpose
        return
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield text
