"""What a launched run has made on this node, and of what: found by its name alone, from the files of the run. Of a run
that was stopped it is the newest checkpoint."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from train.cache import home_dir
from train.errors import BadInput
from train.layout import BASE_MODELS, ROWS
from train.plan.run_name import check_name
from train.plan.settings import own_recipe
from train.plan.settings.read_settings import RunConfig, Settings, nearest
from train.runlog import paths
from train.runlog.tail import read

if TYPE_CHECKING:
    from train.data.rows import Rows

SomeRows = TypeVar("SomeRows", bound="Rows")


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedRun:
    run: str
    folder: Path
    """results/RUN/adapter or model, or a checkpoint; of a run with method full it is a model of its own."""
    step: int | None = None
    """The step of the checkpoint that this is; None where the run is done."""
    base: str
    """The base model as this node trained on it; perhaps quantised. Empty where it began from nothing."""
    original: str
    """The base model by the name that the launch was given; empty as well."""
    dataset: str
    max_seq_length: int
    load_in: str
    """How the base was held while it trained."""
    settings: Settings
    """All that it was launched with."""

    @property
    def recipe(self) -> str:
        return str(self.settings.get("recipe", RunConfig.recipe))

    @property
    def is_own(self) -> bool:
        """Whether a recipe of one's own made it."""
        return own_recipe.is_file(self.settings.get("recipe", ""))

    @property
    def is_adapter(self) -> bool:
        return (self.folder / "adapter_config.json").is_file()

    @property
    def tokenizer(self) -> Path:
        """The tokenizer of a model from nothing: beside its weights, else beside the rows that it was trained on."""
        beside = self.folder / "tokenizer.json"
        return self.folder if beside.is_file() else Path(self.dataset) / "tokenizer"

    @property
    def scores(self) -> bool:
        """Whether it made a reward model."""
        return self.recipe == "preference" and self.settings.get("loss") == "reward"

    @property
    def original_or_base(self) -> str:
        """The base in 16 bit, as a merge needs it: the copy that is here, if it is not quantised."""
        config = Path(self.base) / "config.json"
        quantised = config.is_file() and "quantization_config" in json.loads(config.read_text())
        return self.original if quantised else self.base


def add_arguments(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--run", required=required, help="a run of this node, instead of naming its parts")
    parser.add_argument(
        "--home", type=Path, help="where the files of runs are kept (default $MOTLEY_HOME or ~/ai-cluster)"
    )


def find(args: argparse.Namespace) -> FinishedRun:
    if args.home:
        os.environ["MOTLEY_HOME"] = str(args.home.resolve())
    home, run = home_dir(), args.run
    check_name("run", run)
    folder, logs = paths.made(home, run), paths.logs(home, run)
    if folder is None and not logs.is_dir():
        done = [path.name for path in sorted((home / "results").glob("*")) if paths.made(home, path.name)]
        raise BadInput(
            f"there is no run '{run}' here{nearest(run, done)}",
            f"home: {home}",
            f"done are: {', '.join(done) or 'none'}",
        )
    step = None
    if folder is None:
        folder, step = newest_checkpoint(home, run)
    if not (logs / paths.LAUNCH).is_file():
        raise BadInput(
            f"run '{run}' was not launched, so its settings are not known here", fix="name its parts; --help"
        )
    launched = json.loads((logs / paths.LAUNCH).read_text())
    settings = launched["all"]
    base, rows = base_of(home, launched["model"]["folder_name"], settings), launched.get("rows")
    starts = [event for event in read(logs / paths.EVENTS) if event["event"] == "start"]
    return FinishedRun(
        run=run,
        folder=folder,
        step=step,
        base=base,
        original=settings.get("model", ""),
        dataset=str(home / ROWS / rows) if rows else settings["dataset"],
        max_seq_length=int(settings["max_seq_length"]),
        settings=settings,
        load_in=starts[-1]["decisions"]["load_in"] if starts else "16bit",
    )


def base_of(home: Path, folder_name: str, settings: Settings) -> str:
    """The folder here, else the name; empty where there is none."""
    if not folder_name:
        return ""
    folder = home / BASE_MODELS / folder_name
    return str(folder) if folder.is_dir() else str(settings.get("model", ""))


def newest_checkpoint(home: Path, run: str) -> tuple[Path, int]:
    """The whole one, and its step; what it is, and what was passed over, is said."""
    from train.engine import checkpoint

    saved, problems = checkpoint.newest_intact(paths.checkpoints(home, run))
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    if saved is None:
        raise BadInput(f"run '{run}' has no whole checkpoint yet", fix=f"resume it: ./motley launch --resume {run}")
    print(f"{run} is not done: this is its checkpoint of step {saved.step}", file=sys.stderr)
    return saved.folder, saved.step


def fill(args: argparse.Namespace, **known: Any) -> None:
    """What was not named is taken from the run."""
    for name, value in known.items():
        if getattr(args, name) is None:
            setattr(args, name, value)


def require(args: argparse.Namespace, *names: str) -> None:
    """These are there, and the adapter is one."""
    if missing := [f"--{name}" for name in names if getattr(args, name) is None]:
        raise BadInput(f"{' and '.join(missing)} is missing", fix="name the run alone: --run RUN")
    if (args.adapter / "adapter_config.json").is_file():
        return
    if (args.adapter / "model.safetensors").is_file():
        raise BadInput(
            "this folder holds a whole model (method=full), no adapter",
            f"folder: {args.adapter}",
            "transformers and vLLM load it as it is, and ./motley ask asks it",
        )
    raise BadInput("this folder holds no adapter: it has no adapter_config.json", f"folder: {args.adapter}")


def some_held_out(rows: SomeRows, folder: Path, fix: str = "use eval_fraction=0.05") -> SomeRows:
    if not len(rows):
        raise BadInput("nothing is held out in this data set", f"folder: {folder}", fix)
    return rows
