"""Which files of a data set of the hub are trained on: those of one config and one split, never several mixed.

The card's `configs:` says which there are (https://huggingface.co/docs/hub/datasets-manual-configuration); without it
the folders and names of the files do. If none can be read, the hub's own conversion to parquet is taken.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from train.errors import BadInput
from train.hub import explained, hub_file

SUFFIXES = (".jsonl", ".json", ".csv", ".txt", ".parquet")
NOT_DATA = ("readme", "license", "dataset_info", "config", "requirements", "trainer_state")
HELD_BACK = frozenset({"test", "tests", "testing", "valid", "validation", "val", "eval", "evaluation", "dev"})
TRAINING = frozenset({"train", "training"})
CARD, CONVERTED = "README.md", "refs/convert/parquet"
SHOWN = 20
Parts = dict[str, list[str]]
"""config, or config/split → its files."""


class NoSuchPart(BadInput):
    """What is asked for is not there, as the hub itself says."""


def hub_dataset(name: str) -> list[Path]:
    """The training files of a data set on the hub."""
    from huggingface_hub import HfApi

    repo = name.partition(":")[0]

    def names(revision: str | None) -> list[str]:
        with explained(repo, "dataset"):
            return list(HfApi().list_repo_files(repo, repo_type="dataset", revision=revision))

    revision, chosen = training_part(name, names)
    return [hub_file(repo, file, "dataset", revision) for file in chosen]


def training_part(name: str, names_at: Callable[[str | None], list[str]]) -> tuple[str | None, list[str]]:
    """`name`: owner/name, or owner/name:config/split. `names_at`: all files of a revision."""
    repo, _, asked = name.partition(":")
    for revision in (None, CONVERTED):
        try:
            names = names_at(revision)
        except BadInput:
            if revision is None:
                raise
            continue  # not every data set has a conversion
        has_card = revision is None and CARD in names
        parts, default = by_card(repo, hub_file(repo, CARD, "dataset"), names) if has_card else ({}, "")
        if parts := parts or in_folders(names):
            return revision, pick(repo, asked, parts, default)
    raise NoSuchPart(f"{repo} holds no file that can be read ({' '.join(SUFFIXES)})", "data set of the hub")


def by_card(repo: str, file: Path, names: list[str]) -> tuple[Parts, str]:
    """Whoever wrote the card: one that is not as the hub wants it is none."""
    import yaml

    try:
        return of_card(file.read_text(encoding="utf-8"), names)
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError) as error:
        problem = f"what its {CARD} says of its parts cannot be read ({type(error).__name__})"
        print(f"careful   {repo}: {problem}; its files' names decide", file=sys.stderr)
        return {}, ""


def of_card(card: str, names: list[str]) -> tuple[Parts, str]:
    """The parts as the card's head names them, and the config that it marks as the default one."""
    import yaml

    head = yaml.safe_load(card.split("---")[1]) if card.startswith("---") else None
    parts: Parts = {}
    default = ""
    for config in (head or {}).get("configs") or []:
        title, folder = str(config.get("config_name", "default")), str(config.get("data_dir") or "").rstrip("/")
        if config.get("default") or title == "default":
            default = title
        for split, patterns in patterns_by_split(config.get("data_files") or ([f"{folder}/**"] if folder else [])):
            in_either = [pattern for each in patterns for pattern in (each, f"{folder}/{each}")]
            files = sorted(name for name in names if name.endswith(SUFFIXES) and matches(name, in_either))
            if chosen := files if split else training_files(files):
                parts.setdefault(f"{title}/{split}".rstrip("/"), []).extend(chosen)
    return parts, default


def patterns_by_split(data_files: Any) -> list[tuple[str, list[str]]]:
    """`data_files` in all its forms: a pattern, a list of them, split → pattern, or a list of split and path."""
    if isinstance(data_files, dict):
        data_files = [{"split": split, "path": path} for split, path in data_files.items()]
    entries = [data_files] if isinstance(data_files, str) else data_files
    without_split = [entry for entry in entries if isinstance(entry, str)]
    splits = [(str(entry["split"]), entry["path"]) for entry in entries if isinstance(entry, dict)]
    splits += [("", without_split)] if without_split else []
    return [(split, [path] if isinstance(path, str) else path) for split, path in splits]


def matches(name: str, patterns: list[str]) -> bool:
    return any(
        fnmatch(name, pattern.removeprefix("./").replace("**/", "*"))
        for pattern in patterns
        if "**" in pattern or name.count("/") == pattern.removeprefix("./").count("/")
    )


def in_folders(names: list[str]) -> Parts:
    parts: Parts = {}
    for name in training_files(names):
        parts.setdefault(name.rpartition("/")[0], []).append(name)
    return parts


def pick(repo: str, asked: str, parts: Parts, default: str) -> list[str]:
    """What is asked for; else the one there is to train on."""
    within = asked or (default if any(below(part, default) for part in parts) else "")
    candidates = [part for part in parts if below(part, within)]
    if asked in candidates:
        return parts[asked]
    candidates = [part for part in candidates if not held_back(part)]
    candidates = [part for part in candidates if part.rpartition("/")[2] == "train"] or candidates
    if len(candidates) == 1:
        return parts[candidates[0]]
    listed = ", ".join([*parts][:SHOWN]) + (f" and {len(parts) - SHOWN} more" if len(parts) > SHOWN else "")
    problem = "several parts" if candidates else f"no part '{asked}'"
    raise NoSuchPart(
        f"{repo} has {problem}: {listed}",
        f"data set: https://huggingface.co/datasets/{repo}",
        f"name the one that you want: dataset={repo}:{(candidates or [*parts])[0]}".rstrip(":"),
    )


def below(part: str, folder: str) -> bool:
    return not folder or part == folder or part.startswith(f"{folder}/")


def training_files(names: list[str]) -> list[str]:
    """The files of one suffix, and of the training part where the names show it."""
    data = [name for name in names if name.endswith(SUFFIXES) and not held_back(name)]
    data = [name for name in data if not name.rsplit("/", 1)[-1].lower().startswith(NOT_DATA)]
    kept = [name for name in data if TRAINING & words(name)] or data
    suffixes = [suffix for suffix in SUFFIXES if any(name.endswith(suffix) for name in kept)]
    return sorted(name for name in kept if name.endswith(suffixes[0])) if suffixes else []


def held_back(name: str) -> bool:
    return bool(HELD_BACK & words(name))


def words(name: str) -> set[str]:
    return set(re.split(r"[^a-z]+", name.lower()))
