"""A run's curves where others look: trackio, Weights & Biases, MLflow or TensorBoard, fed from its event logs as they
grow. Runs in that program's own environment, by itself; console/report_to.py starts it.

python -m console.curves.trackers trackio|wandb|mlflow|tensorboard FOLDER [--once]

FOLDER is results/RUN: the logs of each node below nodes/, and about.json with what is said once. What was sent is
written down there, so a run that was resumed, or that is sent again, is one run: each step has one point. Nothing goes
beyond this machine unless its owner has said where to: WANDB_MODE=online, MLFLOW_TRACKING_URI, TRACKIO_SPACE_ID.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypedDict

from console.curves.tensorboard_points import EVERY_S, Curves, Points, scalars
from train.files import write_atomic
from train.runlog.paths import EVENTS, NODES
from train.runlog.state import Event
from train.runlog.tail import read

FOLDER, ABOUT = "trackers", "about.json"
PROJECT = "motley"


class About(TypedDict):
    """What is said once of a run: about.json."""

    settings: dict[str, object]
    numbers: dict[str, float]


class Tracker(Protocol):
    def add(self, step: int, at: float, points: dict[str, float]) -> None: ...
    def end(self, step: int, numbers: dict[str, float]) -> None:
        """`numbers`: those of the whole run, which the report shows, at its last step."""


class Trackio:
    def __init__(self, run: str, about: About, folder: Path) -> None:
        import trackio  # noqa: PLC0415  its own environment alone has it

        self.log, self.finish = trackio.log, trackio.finish
        quiet = {"auto_log_gpu": False, "auto_log_cpu": False, "embed": False}
        space = {"space_id": os.environ["TRACKIO_SPACE_ID"]} if os.environ.get("TRACKIO_SPACE_ID") else {}
        trackio.init(project=PROJECT, name=run, resume="allow", config=about["settings"], **quiet, **space)

    def add(self, step: int, at: float, points: dict[str, float]) -> None:
        self.log(points, step=step)

    def end(self, step: int, numbers: dict[str, float]) -> None:
        if numbers:
            self.log(numbers, step=step)
        self.finish()


class Wandb:
    def __init__(self, run: str, about: About, folder: Path) -> None:
        os.environ.setdefault("WANDB_MODE", "offline")
        os.environ.setdefault("WANDB_DIR", str(folder))
        os.environ |= {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}
        import wandb  # noqa: PLC0415

        of_this_program = wandb.Settings(disable_git=True, x_disable_stats=True, console="off")
        known = {"project": PROJECT, "id": run, "name": run, "resume": "allow"}
        self.run = wandb.init(**known, config=about["settings"], settings=of_this_program)

    def add(self, step: int, at: float, points: dict[str, float]) -> None:
        self.run.log(points | {"time": at}, step=step)

    def end(self, step: int, numbers: dict[str, float]) -> None:
        self.run.summary.update(numbers)
        self.run.finish()


class Mlflow:
    def __init__(self, run: str, about: About, folder: Path) -> None:
        os.environ |= {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
        from mlflow.entities import Metric  # noqa: PLC0415
        from mlflow.tracking import MlflowClient  # noqa: PLC0415

        self.metric = Metric
        self.client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or f"file:{folder / 'mlruns'}")
        known = self.client.get_experiment_by_name(PROJECT)
        experiment = known.experiment_id if known else self.client.create_experiment(PROJECT)
        earlier = self.client.search_runs([experiment], f"tags.motley = '{run}'")
        mlflow_run = earlier[0] if earlier else self.client.create_run(experiment, run_name=run, tags={"motley": run})
        self.id = mlflow_run.info.run_id
        for name, value in about["settings"].items() if not earlier else ():
            self.client.log_param(self.id, name, str(value)[:500])

    def add(self, step: int, at: float, points: dict[str, float]) -> None:
        metrics = [self.metric(name, value, int(at * 1000), step) for name, value in points.items()]
        self.client.log_batch(self.id, metrics=metrics)

    def end(self, step: int, numbers: dict[str, float]) -> None:
        self.add(step, time.time(), numbers)
        self.client.set_terminated(self.id)


class Tensorboard:
    def __init__(self, run: str, about: About, folder: Path) -> None:
        self.curves = Curves(folder / "tensorboard" / run)
        self.add = self.curves.add

    def end(self, step: int, numbers: dict[str, float]) -> None:
        self.add(step, time.time(), numbers)
        self.curves.writer.close()


KINDS: dict[str, Callable[[str, About, Path], Tracker]] = {
    "trackio": Trackio,
    "wandb": Wandb,
    "mlflow": Mlflow,
    "tensorboard": Tensorboard,
}


class Sent:
    """What was sent of a run, by the newest step of each kind of event."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.file = folder / FOLDER / f"{kind}.json"
        known = json.loads(self.file.read_text()) if self.file.exists() else {}
        files = (folder / NODES).glob(f"*/{EVENTS}")
        began = min((event["time"] for file in files for event in read(file) if event["event"] == "start"), default=0.0)
        if known and began > known["until"]:  # its name was taken for another run, and the logs are that one's
            known = {}
        day = time.strftime("%Y%m%d-%H%M%S", time.localtime(began))
        self.known = known or {"run": f"{folder.name}-{day}", "until": began, "steps": {}}

    def new(self, events: Iterable[Event]) -> Iterator[Event]:
        """In the order of steps: a node that was away lacks some, and another's log has them."""
        for event in sorted(events, key=lambda event: int(event["step"])):
            if event["step"] > self.known["steps"].get(event["event"], -1):  # 0: an evaluation of the base
                yield event
                self.known["steps"][event["event"]] = event["step"]
                self.known["until"] = max(self.known["until"], event["time"])

    @property
    def newest(self) -> int:
        return max(self.known["steps"].values(), default=0)

    def keep(self) -> None:
        write_atomic(self.file, json.dumps(self.known).encode())


def main(kind: str, folder: Path, *, once: bool) -> None:
    if not once:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    sent, source = Sent(folder, kind), Points(folder / NODES)
    about: About = json.loads((folder / FOLDER / ABOUT).read_text())
    tracker = KINDS[kind](sent.known["run"], about, folder / FOLDER)

    def send() -> None:
        for event in sent.new(source.new()):
            tracker.add(event["step"], event["time"], scalars(event))
        sent.keep()

    try:
        while not once:
            send()
            time.sleep(EVERY_S)
    except KeyboardInterrupt:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    send()
    tracker.end(sent.newest, json.loads((folder / FOLDER / ABOUT).read_text())["numbers"])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).resolve(), once="--once" in sys.argv)
