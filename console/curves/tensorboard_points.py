"""What TensorBoard reads, made from a run's event logs as they grow. Runs in TensorBoard's own environment, by itself:

python -m console.curves.tensorboard_points FOLDER-OF-LOGS FOLDER-FOR-TENSORBOARD [--once]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from train.runlog.paths import EVENTS
from train.runlog.state import Event
from train.runlog.tail import Tail

EVERY_S = 2.0
OF_A_STEP = ("loss", "lr", "grad_norm", "step_s", "sync_s")
OF_A_NODE = ("rows", "compute_s", "wait_s", "gpu_gb")


def scalars(event: Event) -> dict[str, float]:
    """Name of a curve → its point; nothing where the event is none of a step."""
    if event["event"] == "eval":
        points = {"loss": event["loss"], **event.get("metrics", {})}
        return {f"held_out/{name}": float(value) for name, value in points.items() if value is not None}
    if event["event"] != "step":
        return {}
    points = {f"train/{name}": float(event[name]) for name in OF_A_STEP if event.get(name) is not None}
    points["train/tokens_per_s"] = event["tokens"] / max(1e-6, float(event["step_s"]))
    for node, node_facts in event["nodes"].items():
        points |= {f"{name}/{node}": float(node_facts[name] or 0) for name in OF_A_NODE if name in node_facts}
    return points


class Points:
    """All nodes write the same; one that was away lacks some. A step is drawn once, from whoever has it first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs: dict[Path, Tail] = {}
        self.drawn: set[tuple[str, int]] = set()

    def new(self) -> Iterator[Event]:
        for file in sorted(self.folder.glob(f"*/{EVENTS}")):
            for event in self.logs.setdefault(file, Tail(file)).events():
                point = (event["event"], event.get("step", 0))
                if point not in self.drawn and scalars(event):
                    self.drawn.add(point)
                    yield event


class Curves:
    """A folder that TensorBoard reads."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415  its own environment alone has it
        from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: PLC0415

        self.event, self.summary, self.writer = Event, Summary, EventFileWriter(str(folder))

    def add(self, step: int, at: float, points: dict[str, float]) -> None:
        values = [self.summary.Value(tag=tag, simple_value=value) for tag, value in points.items()]
        self.writer.add_event(self.event(wall_time=at, step=step, summary=self.summary(value=values)))


def main(logs: Path, target: Path, *, once: bool) -> None:
    source, curves = Points(logs), Curves(target)
    while True:
        for event in source.new():
            curves.add(event["step"], event["time"], scalars(event))
        curves.writer.flush()
        if once:
            return
        time.sleep(EVERY_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), once="--once" in sys.argv)
