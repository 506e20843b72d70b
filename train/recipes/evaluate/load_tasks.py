"""The tasks as lm-evaluation-harness has them: found by name, loaded with their data, refused in words.

Two ways to load. On the head, which prepares: `fetched` reads each data set where it is (a file, or the hub, through
the harness's own loader) and `keep` writes down what was read. On every machine: `kept` loads the same tasks over these
files alone, so that no machine asks the hub, and all of them have the same documents.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("DISABLE_MULTIPROC", "1")  # for bootstrapped errors it would fork a worker that has a GPU

import datasets
import lm_eval.tasks
from jinja2.sandbox import ImmutableSandboxedEnvironment
from lm_eval import utils
from lm_eval.api.task import ConfigurableTask, Task
from lm_eval.tasks import TaskManager
from tqdm import tqdm  # type: ignore[import-untyped]

from train.errors import BadInput
from train.plan.settings import task_files
from train.plan.values import nearest

logging.getLogger("lm_eval").setLevel(logging.ERROR)
datasets.disable_progress_bars()
with_bar = tqdm.__init__
tqdm.__init__ = lambda bar, *given, **how: with_bar(bar, *given, **how | {"disable": True})
"""The harness's bars are for a terminal."""
Loaded = dict[str, Any]
"""What TaskManager.load gives: tasks and groups by their names."""
Tasks = Mapping[str, Task]


def fence() -> None:
    """A task's templates are Jinja: those of a person's file reach no Python through them."""
    if not isinstance(utils.env, ImmutableSandboxedEnvironment):
        fenced = ImmutableSandboxedEnvironment(
            loader=utils.env.loader, undefined=utils.env.undefined, keep_trailing_newline=True
        )
        fenced.filters.update(utils.env.filters)
        utils.env = fenced


def fetched(names: Sequence[str], folder: Path) -> tuple[Loaded, list[str]]:
    """The tasks over their own data, and the folders of the harness that they come from; `folder`: where a person's
    files are that are named without one."""
    own = {name: task_files.read(folder / name) for name in names if task_files.is_file(name)}
    known = [name for name in names if name not in own]
    manager = TaskManager(include_defaults=bool(known))
    for name in known:
        require_known(name, manager)
    configs = {name: task_files.placed(task.config, (folder / name).parent) for name, task in own.items()}
    loaded = load(manager, [configs.get(name, name) for name in names])
    return loaded, folders_of(known, loaded, manager)


def require_known(name: str, manager: TaskManager) -> None:
    if name not in manager.all_tasks:
        fix = "https://github.com/EleutherAI/lm-evaluation-harness/tree/v0.4.13/lm_eval/tasks lists them"
        raise BadInput(f"tasks: lm-evaluation-harness has no task '{name}'{nearest(name, manager.all_tasks)}", fix=fix)


def folders_of(names: Sequence[str], loaded: Loaded, manager: TaskManager) -> list[str]:
    """Where the harness has what was loaded: with these alone it need not read all of its 13 000 tasks again."""
    found = set()
    for name in {*names, *loaded["tasks"], *loaded.get("groups", {})}:
        entry = manager.task_index.get(name)
        if entry is not None and entry.yaml_path is not None:
            found.add(str(entry.yaml_path.parent.relative_to(home())))
    return sorted(found)


def home() -> Path:
    return Path(lm_eval.tasks.__file__).parent


def load(manager: TaskManager, names: Sequence[str | dict[str, Any]]) -> Loaded:
    fence()
    try:
        loaded: Loaded = dict(manager.load(list(names)))
    except BadInput:
        raise
    except ImportError as error:
        what = f"tasks: one of them needs the package {error.name or error}, which Motley does not bring"
        raise BadInput(what, fix="choose another task") from None
    except Exception as error:  # whatever a task's own code, its YAML or its data meet
        what = f"tasks: they cannot be loaded: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise BadInput(what, fix="check the connection of the head to the hub, or the task's data") from None
    for name, task in loaded["tasks"].items():
        require_fit(name, task)
    return loaded


def require_fit(name: str, task: Task) -> None:
    """BadInput for a task that a language model of text cannot be asked, or not safely."""
    if getattr(task, "UNSAFE_CODE", False):
        raise BadInput(f"tasks: {name} runs what the model writes, which is not done here", fix="choose another task")
    if getattr(task, "MULTIMODAL", False):
        raise BadInput(f"tasks: {name} is of pictures or sounds, and the model reads text", fix="choose another task")
    if not isinstance(task, ConfigurableTask):
        raise BadInput(f"tasks: {name} loads its data by code of its own", fix="choose another task")
    judged = task.config.process_results is not None
    for metric in () if judged else task._metric_fn_list:
        if isinstance(metric, str) and task._metric_fn_list[metric] is None:
            fix = "acc, acc_norm, exact_match, f1 or another of the harness's own"
            raise BadInput(f"tasks: {name} is measured by '{metric}', which the harness does not have", fix=fix)


def keep(loaded: Loaded, names: Sequence[str], folders: list[str], own: Path, to: Path) -> dict[str, Any]:
    """Writes the documents of all tasks, and how to load them again."""
    numbers = {name: str(number) for number, name in enumerate(loaded["tasks"])}
    for name, task in loaded["tasks"].items():
        for split in splits_of(task):
            task.dataset[split].save_to_disk(str(to / "data" / numbers[name] / split))
    configs = {name: task_files.read(own / name).config for name in names if task_files.is_file(name)}
    about = {"names": list(names), "folders": folders, "own": configs, "numbers": numbers}
    (to / "tasks.json").write_text(json.dumps(about, indent=1))
    return about


def splits_of(task: Any) -> list[str]:
    """The parts of its data that a task reads, each once."""
    config, few = task.config, task.fewshot_cfg
    named = [config.test_split, config.validation_split, config.training_split, getattr(few, "split", None)]
    return list(dict.fromkeys(split for split in named if split is not None and split in task.dataset))


def kept(folder: Path) -> Loaded:
    """The tasks over what `keep` wrote."""
    about = json.loads((folder / "tasks.json").read_text())
    with reading(lambda name: folder / "data" / about["numbers"][name]):
        manager = TaskManager(include_defaults=False, include_path=[home() / part for part in about["folders"]])
        return load(manager, [about["own"].get(name, name) for name in about["names"]])


@contextmanager
def reading(place: Callable[[str], Path]) -> Iterator[None]:
    """While it lasts a task's data come from the folder of its name, in place of where its YAML says."""
    original = ConfigurableTask.download

    def from_folder(task: Any, *_: Any, **__: Any) -> None:
        parts = sorted(place(task.config.task).iterdir())
        task.dataset = datasets.DatasetDict({part.name: datasets.load_from_disk(str(part)) for part in parts})

    ConfigurableTask.download = from_folder
    try:
        yield
    finally:
        ConfigurableTask.download = original
