"""`python -m train prepare --recipe evaluate`: the documents of all tasks and how they are cut, once for all machines.

    python -m train prepare --recipe evaluate --model tiny --tasks arc_easy,mine.yaml --dataset FOLDER

FOLDER has the files of a person's own tasks. In the prepared folder are

    data/NUMBER/SPLIT   what a task reads, as `datasets` keeps it
    tasks.json          which tasks these are, and how to load them over these data (load_tasks.kept)
    index.json          the parts that are asked in one piece each (requests.cut)
"""

from __future__ import annotations

import importlib.metadata
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from train.cache import build_once, home_dir
from train.data.left_out_in_words import TRAINED_ON
from train.data.prepare import rows_folder
from train.data.rows import FORMAT
from train.errors import BadInput
from train.files import file_hash
from train.plan.launch import extra_packages
from train.plan.settings import task_files
from train.plan.settings.evaluate import EvaluateConfig

KIND, INDEX = "tasks", "index.json"
CHOSEN = ("tasks", "documents", "shots", "seed")
"""Settings that decide what is asked, and in which parts."""


def prepare(config: EvaluateConfig, say: Callable[[str], None], *, out: str | None = None, date: str = "") -> Path:
    """The folder of the tasks; made only if it is not there yet."""
    names = task_files.names_in(config.tasks)
    own = Path(config.dataset or ".").expanduser()
    extra_packages.use(config)
    files = [file for name in names if task_files.is_file(name) for file in task_files.read(own / name).files]
    chosen = {name: getattr(config, name) for name in CHOSEN}
    key = {"format": FORMAT, "tasks": chosen, "files": [file_hash(file) for file in files], "harness": version()}
    folder = rows_folder("tasks", key, out)
    known = folder.exists()
    build_once(folder, lambda draft: build(draft, config, names, own, key))
    index = read(folder)
    say(f"tasks     {', '.join(index['documents'])}")
    say(f"documents {sum(index['documents'].values())}, in {len(index['parts'])} parts")
    say(f"folder    {folder}{' (was there already)' if known else ''}")
    return folder


def version() -> str:
    return importlib.metadata.version("lm_eval")


def build(draft: Path, config: EvaluateConfig, names: list[str], own: Path, key: dict[str, Any]) -> None:
    os.environ.setdefault("HF_HOME", str(home_dir() / ".cache/huggingface"))  # where an undo finds it
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from train.recipes.evaluate import load_tasks, requests

    loaded, folders = load_tasks.fetched(names, own)
    load_tasks.keep(loaded, names, folders, own, draft)
    asked = requests.build(loaded, limit=config.documents, shots=config.shots, seed=config.seed)
    counts = {name: len(documents) for name, documents in asked.items()}
    rows = {"rows": sum(counts.values())}
    index: dict[str, Any] = {"format": FORMAT, "kind": KIND, "made_from": key, "documents": counts}
    index |= {"parts": [asdict(part) for part in requests.cut(asked)]}
    index |= {"splits": {"train": rows, "eval": {"rows": 0}}, TRAINED_ON: False}
    (draft / INDEX).write_text(json.dumps(index, indent=1))


def read(folder: Path) -> dict[str, Any]:
    try:
        index: dict[str, Any] = json.loads((folder / INDEX).read_text())
    except (OSError, ValueError):
        index = {}
    if index.get("kind") != KIND:
        fix = "prepare them: python -m train prepare --recipe evaluate --tasks …"
        raise BadInput("this folder holds no prepared tasks", f"folder: {folder}", fix)
    return index
