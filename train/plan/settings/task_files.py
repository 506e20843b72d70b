"""A task of one's own for `./motley eval --tasks`: a YAML of lm-evaluation-harness and the data that lies beside it.

What it holds is data: a YAML that names code (`!function`, `class`) is refused, as the harness would run it on every
machine without a fence. The harness's own tasks may have code, as they come with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.errors import BadInput
from train.plan.values import NO_VALUE

SUFFIXES = (".yaml", ".yml")
LOCAL_DATA = ("json", "csv", "parquet", "text")
"""What `dataset_path` is called where the data are files; anything else is a data set of the hub."""
NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")
CODE = ("class", "custom_dataset")
FIX = "write it with the keys of docs/results.md#tasks-of-your-own"
Config = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TaskFile:
    config: Config
    """What the harness is given: what it includes is in it."""
    files: tuple[Path, ...]
    """All that has to travel: the YAML, what it includes, its data."""

    @property
    def name(self) -> str:
        return str(self.config["task"])


def names_in(tasks: str) -> list[str]:
    """The tasks of a list with commas between them, each once."""
    return list(dict.fromkeys(name for name in (part.strip() for part in tasks.split(",")) if name))


def is_file(task: str) -> bool:
    return task.endswith(SUFFIXES)


def read(path: Path) -> TaskFile:
    """BadInput for one that is broken, that names code, or whose data are elsewhere than beside it."""
    folder = path.parent
    config, files = merged(path, folder, ())
    where = f"file: {path}"
    if "group" in config or isinstance(config.get("task"), list):
        raise BadInput("this file is a group of tasks", where, "name its tasks, with commas between them")
    if not NAME.fullmatch(str(config.get("task", ""))):
        raise BadInput(f"task: '{config.get('task', '')}' is no name for a task", where, "task: my-questions")
    require_no_code(config, where)
    source = config.get("dataset_path")
    if not isinstance(source, str):
        raise BadInput("dataset_path is missing", where, "dataset_path: json, and dataset_kwargs: data_files")
    if source not in LOCAL_DATA:
        if (folder / source).exists() or source.startswith((".", "/", "~")) or source.count("/") > 1:
            raise BadInput(f"dataset_path: {source} is neither one of {'|'.join(LOCAL_DATA)} nor of the hub", where)
        return TaskFile(config, files)
    data = [beside(name, folder, where) for name in data_files(config, where)]
    return TaskFile(config, (*files, *data))


def require_no_code(config: Config, where: str) -> None:
    for key in CODE:
        if key in config:
            raise BadInput(f"{key}: names code, which would run on every machine", where, FIX)
    if config.get("unsafe_code"):
        raise BadInput("unsafe_code: what a model writes is not run here", where, "leave it out")
    if arguments(config, where).get("trust_remote_code"):
        raise BadInput("trust_remote_code: code of a data set is not run here", where, "leave it out")
    if pictures := [key for key in ("doc_to_image", "doc_to_audio") if config.get(key)]:
        raise BadInput(f"{pictures[0]}: tasks of pictures and sounds are not asked here", where, "choose one of text")


def arguments(config: Config, where: str) -> Config:
    """What the data set is loaded with."""
    given = config.get("dataset_kwargs") or {}
    if not isinstance(given, dict):
        raise BadInput("dataset_kwargs: it is not NAME: VALUE", where, "data_files: {test: mine.jsonl}")
    return given


def data_files(config: Config, where: str) -> list[str]:
    files = [*listed(arguments(config, where).get("data_files"))]
    if not files:
        raise BadInput("dataset_kwargs: data_files is missing", where, "data_files: {test: mine.jsonl}")
    return files


def listed(named: Any) -> Iterator[str]:
    """The files that a value names: one, several, or those of each split."""
    if isinstance(named, str):
        yield named
    elif isinstance(named, dict):
        for part in named.values():
            yield from listed(part)
    elif isinstance(named, list):
        for part in named:
            yield from listed(part)


def placed(config: Config, folder: Path) -> Config:
    """The task with its data named from anywhere."""
    if config["dataset_path"] not in LOCAL_DATA:
        return config
    given = dict(config["dataset_kwargs"])
    return {**config, "dataset_kwargs": given | {"data_files": _placed(given["data_files"], folder)}}


def _placed(named: Any, folder: Path) -> Any:
    if isinstance(named, dict):
        return {split: _placed(part, folder) for split, part in named.items()}
    return [_placed(part, folder) for part in named] if isinstance(named, list) else str(folder / named)


def merged(path: Path, folder: Path, above: tuple[Path, ...]) -> tuple[Config, tuple[Path, ...]]:
    """What stands in a file, over what stands in those that it includes; and all these files."""
    config = parsed(path)
    if path in above:
        raise BadInput("include: leads back to this file", f"file: {path}", "take one of the two out")
    below: Config = {}
    files: tuple[Path, ...] = (path,)
    for name in listed(config.pop("include", [])):
        part, others = merged(beside(name, folder, f"file: {path}"), folder, (*above, path))
        below, files = below | part, files + others
    return below | config, files


def parsed(path: Path) -> Config:
    import yaml

    class Plain(yaml.SafeLoader):
        """Knows no tag but YAML's own."""

    def refuse(loader: yaml.SafeLoader, node: yaml.Node) -> None:
        what = f"!function {node.value} names code, which would run on every machine"
        raise BadInput(what, f"file: {path}, line {node.start_mark.line + 1}", FIX)

    Plain.add_constructor("!function", refuse)
    try:
        config = yaml.load(path.read_text(encoding="utf-8"), Plain)  # noqa: S506  it is a SafeLoader
    except (OSError, UnicodeError) as error:
        raise BadInput(f"the task cannot be read: {error}", f"file: {path}") from None
    except (yaml.YAMLError, *NO_VALUE) as error:
        raise BadInput(f"the task is not YAML: {' '.join(str(error).split())[:200]}", f"file: {path}") from None
    if not isinstance(config, dict):
        raise BadInput("the task is not YAML of the form NAME: VALUE", f"file: {path}", FIX)
    return config


def beside(name: str, folder: Path, where: str) -> Path:
    """A file that travels with the task."""
    path = folder / name
    if Path(name).is_absolute() or ".." in Path(name).parts or "://" in name:
        raise BadInput(f"{name} lies elsewhere, and would not travel with the task", where, "put it beside the task")
    if not path.is_file():
        raise BadInput(f"there is no file {path}", where, "put it beside the task")
    return path
