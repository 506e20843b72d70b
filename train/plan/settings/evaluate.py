"""The settings of asking a model tasks of lm-evaluation-harness (recipe=evaluate). Nothing is trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from train.errors import BadInput
from train.plan.model.catalogue import Dataset
from train.plan.run_name import check_name
from train.plan.settings import task_files
from train.plan.settings.every_run import at_least, flags, option
from train.plan.settings.only_asks import OnlyAsksConfig
from train.runlog import paths

HELD = ("base", "adapter")
"""What is asked; without an adapter the first alone."""


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(OnlyAsksConfig):
    PACKAGES: ClassVar[str] = "tasks"
    PREPARES: ClassVar[str] = "train.recipes.evaluate.prepare"
    RESULT: ClassVar[str] = paths.SCORES
    SIDE_BY_SIDE: ClassVar[str] = "requests_at_once"
    REQUIRED: ClassVar[frozenset[str]] = frozenset({"model"})

    recipe: str = option("evaluate", "math", "ask a model tasks", ("evaluate",))
    tasks: str = option("", "math", "tasks of lm-evaluation-harness and files of your own: arc_easy,./mine.yaml")
    documents: int = option(0, "math", "documents of each task, at most; 0: all")
    shots: int | None = option(None, "math", "examples before each question; none set: as the task has it")
    requests_at_once: int = option(8, "math", "requests that a machine computes side by side; memory counts them")
    of_run: str = option("", "agree", "the run whose adapter it is, for its report")

    dataset: str = option("", "node", "prepared folder; what is read follows from tasks")
    max_seq_length: int = option(512, "agree", "tokens of a request, as far as memory is counted")

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "documents", 0)
        if self.shots is not None:
            at_least(self, "shots", 0)
        at_least(self, "requests_at_once", 1)
        if self.of_run:
            check_name("of_run", self.of_run)

    @property
    def sides(self) -> tuple[str, ...]:
        return HELD if self.adapter else HELD[:1]

    @property
    def subject(self) -> str:
        return f"{self.model} · {self.tasks}"

    @property
    def about(self) -> str:
        return f"asked {self.tasks}"

    @property
    def row_words(self) -> str:
        return f"pieces of {', '.join(task_files.names_in(self.tasks))}"

    @property
    def step_words(self) -> tuple[int, str]:
        return self.requests_at_once, "requests"

    def data(self) -> Dataset:
        """The files of a person's own tasks, which lie below one folder."""
        if self.dataset:
            raise BadInput("dataset: recipe=evaluate reads what its tasks name", fix="leave dataset out")
        names = task_files.names_in(self.tasks)
        if not names:
            raise BadInput("tasks: none is named", fix="tasks=arc_easy, or a file of your own: tasks=./mine.yaml")
        if odd := next((name for name in names if not task_files.is_file(name) and len(name.split()) > 1), ""):
            raise BadInput(f"tasks: '{odd}' is no name", fix=f"tasks={','.join(odd.split())}")
        files = [Path(name).expanduser().resolve() for name in names if task_files.is_file(name)]
        if missing := next((file for file in files if not file.is_file()), None):
            raise BadInput(f"tasks: there is no file {missing}", fix="give the path of a .yaml file")
        if not files:
            return Dataset(name="tasks", reason=f"{self.tasks}, of lm-evaluation-harness", embedded="none")
        folder = files[0].parent
        if len({file.parent for file in files}) > 1:
            raise BadInput(
                "tasks: your files lie in several folders", fix="put them beside each other, with their data"
            )
        travelling = dict.fromkeys(file for path in files for file in task_files.read(path).files)
        return Dataset(
            name=f"tasks-{files[0].stem}", reason=f"tasks of {folder}", files=tuple(travelling), folder=folder
        )

    def prepare_words(self, model_folder: str, file: str = "") -> list[str]:
        """The head knows a file of one's own by its name below `dataset`."""
        names = [Path(name).name if task_files.is_file(name) else name for name in task_files.names_in(self.tasks)]
        words = [f"--model={model_folder}", "--recipe=evaluate", f"--tasks={','.join(names)}"]
        words += flags(self, "documents", "seed")
        return words + ([f"--shots={self.shots}"] if self.shots is not None else [])
