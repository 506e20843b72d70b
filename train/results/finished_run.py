"""What a launched run has made on this node, and of what: found by its name alone, from the files of the run."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.runlog import paths
from train.runlog.tail import read
from train.cache import home_dir
from train.plan.config import nearest
from train.errors import BadInput
from train.plan.names import check_name


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedRun:
    run: str
    folder: Path
    """results/RUN/adapter; of a run with method full it is a model of its own."""
    base: str
    """The base model as this node trained on it; perhaps quantised."""
    original: str
    """The base model by the name that the launch was given."""
    dataset: str
    max_seq_length: int
    load_in: str
    """How the base was held while it trained."""

    @property
    def is_adapter(self) -> bool:
        return (self.folder / "adapter_config.json").is_file()

    @property
    def original_or_base(self) -> str:
        """In 16 bit, as a merge needs it: the copy that is here, if it is not quantised."""
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
    folder, logs = paths.results(home, run) / "adapter", paths.logs(home, run)
    if not folder.is_dir():
        if logs.is_dir():
            what = f"run '{run}' has made nothing yet: an adapter is written at its end"
            raise BadInput(what, fix=f"wait for its end, or: make launch RESUME={run}")
        done = [path.parent.name for path in (home / "results").glob("*/adapter")]
        raise BadInput(
            f"there is no run '{run}' here{nearest(run, done)}",
            f"home: {home}",
            f"done are: {', '.join(done) or 'none'}",
        )
    if not (logs / paths.LAUNCH).is_file():
        raise BadInput(
            f"run '{run}' was not launched, so its settings are not known here", fix="name its parts; --help"
        )
    launched = json.loads((logs / paths.LAUNCH).read_text())
    settings = launched["all"]
    base, rows = home / "models/base" / launched["model"]["folder_name"], launched.get("rows")
    starts = [event for event in read(logs / paths.EVENTS) if event["event"] == "start"]
    return FinishedRun(
        run=run,
        folder=folder,
        base=str(base) if base.is_dir() else settings["model"],
        original=settings["model"],
        dataset=str(home / "data/processed" / rows) if rows else settings["dataset"],
        max_seq_length=int(settings["max_seq_length"]),
        load_in=starts[-1]["decisions"]["load_in"] if starts else "16bit",
    )


def fill(args: argparse.Namespace, **known: Any) -> None:
    """What was not named is taken from the run."""
    for name, value in known.items():
        if getattr(args, name) is None:
            setattr(args, name, value)


def require(args: argparse.Namespace, *names: str) -> None:
    if missing := [f"--{name}" for name in names if getattr(args, name) is None]:
        raise BadInput(f"{' and '.join(missing)} is missing", fix="name the run alone: --run RUN")
