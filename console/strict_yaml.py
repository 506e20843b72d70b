"""YAML as a person means it: a key written twice is an error, a vaulted value is recognised, every error has a line."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

MERGE = "tag:yaml.org,2002:merge"
"""What `<<: *shared` is."""
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlError(Exception):
    def __init__(self, what: str, where: str, fix: str) -> None:
        super().__init__(f"{where}: {what}")
        self.what, self.where, self.fix = what, where, fix


class Vaulted(str):
    """A value that ansible-vault has encrypted."""

    __slots__ = ()


class _Strict(_Loader):  # type: ignore[misc]
    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, AttributeError, LookupError):  # such as 2026-02-30: YAML takes it for a date
            where = f"{node.start_mark.name}:{node.start_mark.line + 1}"
            kind = node.tag.rpartition(":")[2]
            raise YamlError(
                f"'{str(node.value)[:20]}' is no {kind}", where, "put it into quotes, or correct it"
            ) from None


def _mapping(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: dict[Any, int] = {}
    for key_node, _ in node.value:
        if key_node.tag == MERGE:
            continue
        key, line = loader.construct_object(key_node, deep=True), key_node.start_mark.line + 1
        where = f"{node.start_mark.name}:{line}"
        if not isinstance(key, Hashable):
            what = "a mapping stands where a name belongs"
            raise YamlError(what, where, 'put a value that begins with {{ into quotes: "{{ … }}"')
        if key in seen:
            what = f"'{key}' is written twice, in lines {seen[key]} and {line}"
            raise YamlError(what, where, "keep one, or give the other its own name")
        seen[key] = line
    loader.flatten_mapping(node)  # what is merged in comes before, so that a name of its own wins
    return dict(loader.construct_pairs(node, deep=True))


_Strict.add_constructor("tag:yaml.org,2002:map", _mapping)
_Strict.add_constructor("!vault", lambda _, node: Vaulted(node.value))


def load(path: Path) -> Any:
    with path.open(encoding="utf-8") as stream:
        try:
            return yaml.load(stream, Loader=_Strict)  # noqa: S506  a safe loader, made stricter
        except yaml.MarkedYAMLError as wrong:
            mark = wrong.problem_mark or wrong.context_mark
            where = f"{path}:{mark.line + 1}" if mark else str(path)
            fix = "mind the colon with a space after it, and spaces (never tabs) at the line's start"
            raise YamlError(f"this is not YAML: {wrong.problem}", where, fix) from None
        except RecursionError:
            raise YamlError("too much stands within one another", str(path), "write lines like  name: value") from None
        except (UnicodeDecodeError, yaml.reader.ReaderError):
            raise YamlError("this is not a text in UTF-8", str(path), "save it again with the encoding UTF-8") from None
