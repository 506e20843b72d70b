"""Who may import whom: the rules of the house in CONTRIBUTING.md."""

from __future__ import annotations

import ast
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.support import ROOT, pace

PACKAGES = ("train", "console", "lab")
WITHOUT_TORCH = ("train.plan", "train.runlog")
SHARED = ("train.plan", "train.runlog")
"""What the controller may import of the package that trains, beside the few files at its top."""
LOOK = "train.data.look"
"""And what reads a file before it is sent; the controller has neither numpy nor torch."""


@cache
def modules(package: str) -> dict[str, Path]:
    found = {}
    for file in (ROOT / package).rglob("*.py"):
        parts = file.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def folder(module: str, depth: int = 1) -> str:
    """train.plan.model.memory → train.plan, and at depth 2 train.plan.model; what stands above belongs to none."""
    parts = module.split(".")[: depth + 1]
    return ".".join(parts) if len(parts) > depth and ROOT.joinpath(*parts).is_dir() else ""


@cache
def imports(file: Path) -> list[str]:
    """Full names of what a file imports at run time, wherever in it."""
    found: list[str] = []
    waiting: list[ast.AST] = [ast.parse(file.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        waiting += ast.iter_child_nodes(node)
    return found


def graph(package: str) -> dict[str, set[str]]:
    known = modules(package)
    edges: dict[str, set[str]] = {}
    for module, file in known.items():
        named = {name if name in known else name.rpartition(".")[0] for name in imports(file)}
        edges[module] = (named & known.keys()) - {module, package}
    return edges


@pytest.mark.parametrize("package", PACKAGES)
def test_no_file_imports_itself_through_others(package: str) -> None:
    TopologicalSorter(graph(package)).prepare()


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("package", PACKAGES)
def test_no_folder_imports_itself_through_others(package: str, depth: int) -> None:
    folders: dict[str, set[str]] = {}
    for module, needed in graph(package).items():
        if within := folder(module, depth):
            folders.setdefault(within, set()).update(folder(name, depth) for name in needed)
    TopologicalSorter({name: needed - {name, ""} for name, needed in folders.items()}).prepare()


def test_an_import_that_is_there_is_seen() -> None:
    assert "train.engine.bring_up_to_date" not in graph("train")["train.engine.checkpoint"]
    assert "train.engine.checkpoint" in graph("train")["train.engine.bring_up_to_date"]


def test_the_controller_shares_the_plan_and_the_event_log_with_the_nodes_and_nothing_else() -> None:
    files = [file for top in ("console", "plugins") for file in (ROOT / top).rglob("*.py")]
    for file in files:
        for name in imports(file):
            if name.startswith("train.") and any(name.startswith(f"{known}.") for known in modules("train")):
                inside = folder(name) if name in modules("train") else folder(name.rpartition(".")[0])
                assert name.startswith(LOOK) or inside in ("", *SHARED), f"{file.relative_to(ROOT)} imports {name}"


def test_the_package_that_trains_needs_neither_ansible_nor_the_controller() -> None:
    for module, file in modules("train").items():
        for name in imports(file):
            assert name.split(".")[0] not in ("ansible", "console", "lab", "plugins"), f"{module} imports {name}"


def test_a_plan_is_made_without_torch() -> None:
    names = [name for name in modules("train") if name.startswith(WITHOUT_TORCH)]
    assert len(names) > 5
    program = f"import sys; sys.modules['torch'] = None; import {', '.join(names)}"
    pace.does(sys.executable, "-c", program, cwd=ROOT)
