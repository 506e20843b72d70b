"""One machine more or less in hosts.yml, as text: comments and everything else a person wrote there stay."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from console.inventory.check import check
from console.inventory.read import hosts_file
from console.inventory.what_is_wrong import unknown
from train.errors import BadInput

Edit = Callable[[list[str]], list[str]]


def kept(path: Path) -> Path:
    """A numbered copy of the file. Ansible passes over what ends in .bak."""
    number = next(n for n in range(1, 10000) if not path.with_name(f"{path.name}.{n}.bak").exists())
    return Path(shutil.copy2(path, path.with_name(f"{path.name}.{number}.bak")))


def nodes_of(path: Path) -> list[str]:
    """The machines of a hosts.yml that a person edits; BadInput where there is none."""
    if hosts_file(path.parent) != path:
        raise BadInput(f"{hosts_file(path.parent)} makes the list of machines\n  fix: change it there")
    if not path.exists():
        raise BadInput(f"no machines are described yet\n  in {path}\n  fix: ./motley inventory")
    return [*check(path.parent).nodes]


def add(path: Path, name: str, keys: list[str]) -> Path:
    """The copy of the file before."""
    return _edit(path, [*nodes_of(path), name], lambda lines: _with(lines, name, keys))


def others(path: Path, name: str) -> list[str]:
    """The machines that stay without this one."""
    names = nodes_of(path)
    if name not in names:
        raise BadInput(unknown(f"machine '{name}' in {path}", name, "machines", names))
    if len(names) == 1:
        raise BadInput(f"{name} is the only machine in {path}\n  fix: ./motley inventory starts a new file")
    return [other for other in names if other != name]


def remove(path: Path, name: str) -> Path:
    return _edit(path, others(path, name), lambda lines: _without(lines, name))


def _edit(path: Path, names: list[str], edit: Edit) -> Path:
    """What makes something else of the file than was meant, or something new to fix, is taken back."""
    before, earlier = path.read_text(encoding="utf-8"), {str(finding) for finding in check(path.parent).findings}
    try:
        lines = edit(before.splitlines())
    except LookupError:
        raise BadInput(f"{path} is not written one machine a block\n  fix: edit it by hand") from None
    copy = kept(path)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    after = check(path.parent)
    new = [str(finding) for finding in after.findings if str(finding) not in earlier]
    if new or [*after.nodes] != names:
        copy.replace(path)
        raise BadInput("\n".join(new or [f"{path} cannot be edited from here\n  fix: edit it by hand"]))
    return copy


def _with(lines: list[str], name: str, keys: list[str]) -> list[str]:
    _, end, indent = _hosts(lines)
    return [*lines[:end], f"{indent}{name}:", *(f"{indent}  {key}" for key in keys), *lines[end:]]


def _without(lines: list[str], name: str) -> list[str]:
    first, end, indent = _hosts(lines)
    key = re.compile(rf"{indent}(['\"]?){re.escape(name)}\1\s*:")
    begin = next((i for i in range(first, end) if key.match(lines[i])), None)
    if begin is None:
        raise LookupError
    deeper = re.compile(rf"{indent}\s+[^\s#]")
    stop = begin + 1
    for i in range(begin + 1, end):
        if deeper.match(lines[i]):
            stop = i + 1
        elif re.match(r"\s*[^\s#]", lines[i]):
            break
    return [*lines[:begin], *lines[stop:]]


def _hosts(lines: list[str]) -> tuple[int, int, str]:
    """Where the machines begin and end, and the spaces before their names; LookupError where that is not so."""
    group = next((i for i, line in enumerate(lines) if re.match(r"\s*cluster:\s*(#.*)?$", line)), len(lines))
    found = [(i, line) for i, line in enumerate(lines) if i > group and re.match(r"\s+hosts:\s*(#.*)?$", line)]
    if not found:
        raise LookupError
    at, head = found[0]
    depth = len(head) - len(head.lstrip())
    first = end = at + 1
    indent = ""
    for i in range(at + 1, len(lines)):
        words = lines[i].lstrip()
        if not words or words.startswith("#"):
            continue
        spaces = lines[i][: -len(words)]
        if len(spaces) <= depth:
            break
        indent, end = indent or spaces, i + 1
    if not indent:
        raise LookupError
    return first, end, indent
