"""A file holds one idea and a function fits a screen."""

from __future__ import annotations

import ast

from tests.support import ROOT

FILE_LINES, FUNCTION_LINES = 400, 45
PRODUCT = ("train", "console", "plugins", "lab", "requirements")


def files(*folders: str) -> dict[str, str]:
    found = [file for folder in folders for file in (ROOT / folder).rglob("*.py") if not file.is_symlink()]
    return {str(file.relative_to(ROOT)): file.read_text() for file in found}


def long_functions(source: str) -> list[str]:
    nodes = ast.walk(ast.parse(source))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = [(node.name, (node.end_lineno or 0) - node.lineno + 1) for node in functions]
    return [f"{name}: {lines} lines" for name, lines in lengths if lines > FUNCTION_LINES]


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {file: text.count("\n") for file, text in files(*PRODUCT).items()}
    assert len(lengths) > 500
    assert {file: lines for file, lines in lengths.items() if lines > FILE_LINES} == {}


def test_no_function_is_longer_than_45_lines() -> None:
    found = {file: long_functions(text) for file, text in files(*PRODUCT).items()}
    assert {file: functions for file, functions in found.items() if functions} == {}


def test_a_function_of_46_lines_would_be_found() -> None:
    lines = ["def short():", *["    pass"] * 44, "async def long():", *["    pass"] * 45]
    assert long_functions("\n".join(lines)) == ["long: 46 lines"]
