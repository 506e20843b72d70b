"""Where a run is reported: its event log, a line for the person watching, TensorBoard where that is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from train.errors import BadInput
from train.parallel.process_group import World
from train.plan.settings.read_settings import RunConfig
from train.runlog import paths
from train.runlog.events import EventLog, ProgressLine, evaluated_words, sample_line


def doing(config: RunConfig, world: World, what: str) -> None:
    """Says in the node's event log what it does before its first step."""
    log = EventLog(config.log_folder / paths.EVENTS if world.writes else None)
    log.write("doing", node=world.node, what=what)


class Reporter:
    def __init__(self, log: EventLog, progress: ProgressLine) -> None:
        self.write, self.say = log.write, progress.say
        self.progress = progress
        self.board: Any = None

    def open_board(self, config: RunConfig, step: int) -> None:
        """Opens TensorBoard's curves; points of steps that are trained again after a resume are hidden."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise BadInput(
                "tensorboard: it is not installed here", fix="pip install tensorboard, or leave it out"
            ) from None
        self.board = SummaryWriter(str(config.log_folder / "tensorboard"), purge_step=step + 1)

    def step(self, event: Mapping[str, Any]) -> None:
        self.write("step", **event)
        self.progress.show(event)
        for name in ("loss", "lr", "grad_norm", "tokens", "step_s", "sync_s"):
            self._plot(f"train/{name}", event[name], event["step"])
        if "rollout" in event:
            self._plot("train/reward", event["rollout"]["reward"], event["step"])
        for name, value in event.get("pairs", {}).items():
            self._plot(f"train/{name}", value, event["step"])

    def held_out(self, step: int, loss: float, targets: int, metrics: dict[str, float], *, best: bool) -> None:
        event = {"step": step, "loss": loss, "targets": targets, "best": best, "metrics": metrics}
        self.write("eval", **event)
        self.say(evaluated_words(event))
        for name, value in {"loss": loss, **metrics}.items():
            self._plot(f"held_out/{name}", value, step)

    def samples(self, step: int, lines: list[dict[str, str]]) -> None:
        self.write("samples", step=step, lines=lines)
        for line in lines:
            self.say(f"  {sample_line(line)}")

    def warn(self, step: int, message: str) -> None:
        self.write("warning", step=step, message=message)
        self.say(f"warning: {message}")

    def close(self) -> None:
        if self.board:
            self.board.close()

    def _plot(self, name: str, value: float, step: int) -> None:
        if self.board:
            self.board.add_scalar(name, value, step)
