"""One trial: a run of its own in a process of its own, watched by its event log.

It has a home of its own below the sweep's checkpoints, with links to the models and rows of the real one; so it reads
them where they are, and leaves nothing elsewhere. A home that is there already is of a trial that this machine began:
it continues from its checkpoint.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from train.child_process import ending_with_this
from train.files import write_atomic
from train.plan.settings.read_settings import RunConfig
from train.runlog import paths
from train.runlog.tail import Tail

LINKED = ("data", "models/base", "models/tokenizers", "models/adapters", "vllm")
OF_A_GROUP = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
OF_AN_AGENT = ("MOTLEY_AGENT", "MOTLEY_FAILURE", "MOTLEY_ORDER", "MOTLEY_OBEYED", "MOTLEY_STORE_KEY", "MOTLEY_WAITS")
SETTINGS, OUTPUT = "trial.yaml", "output.log"
SAVES_S = 60.0
"""For saving where it is, when the machine is to leave."""
OUT_OF_MEMORY = "out of memory"
KILLED = f"it was killed: {OUT_OF_MEMORY}, most likely"


@dataclass(frozen=True, kw_only=True, slots=True)
class Home:
    folder: Path

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def furnish(self, real: Path, config: RunConfig) -> Path:
        """Its file of settings. Of other settings than it has now nothing is left."""
        text = yaml.safe_dump(
            {name: value for name, value in config.scoped("math", "agree", "node").items() if value is not None}
        )
        file = self.folder / SETTINGS
        if not file.is_file() or file.read_text() != text:
            shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "models").mkdir(parents=True, exist_ok=True)
        for name in LINKED:
            if (real / name).is_dir() and not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to((real / name).resolve())
        write_atomic(file, text.encode())
        return file

    def keep_result_alone(self) -> None:
        for one in self.folder.iterdir():
            if one != self.results:
                shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class Process:
    """The process of a trial, and what its event log says."""

    def __init__(self, home: Home, config: RunConfig, file: Path, device: str) -> None:
        command = [sys.executable, "-m", "train", "run", "--config", str(file)]
        with (home.folder / OUTPUT).open("wb") as output:
            self.process = subprocess.Popen(
                ending_with_this(command),
                env=alone(os.environ, device),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.output = home.folder / OUTPUT
        self.tail = Tail(config.log_folder / paths.EVENTS)
        self.total, self.failure = 0, ""
        self.is_heard = False
        """Whether it has written anything since the time before the last."""
        self.losses: list[tuple[int, float]] = []

    def poll(self) -> int | None:
        return self.process.poll()

    @property
    def was_told_to_leave(self) -> bool:
        return self.process.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM)

    def news(self) -> list[tuple[int, float]]:
        """The held-out losses since the last time."""
        found, events = [], self.tail.events()
        self.is_heard = bool(events)
        for event in events:
            if event["event"] == "start":
                self.total, self.failure = int(event["total_steps"]), ""
            elif event["event"] == "failed":
                self.failure = str(event["message"])
            elif event["event"] == "early_stop":
                self.total = int(event["step"])
            elif event["event"] == "eval" and event["step"] and event["loss"] is not None:
                found.append((int(event["step"]), float(event["loss"])))
        self.losses += found
        return found

    def end(self, *, saves: bool) -> None:
        with suppress(ProcessLookupError):
            if saves:
                os.killpg(self.process.pid, signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(SAVES_S)
                    return
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def why_failed(self) -> str:
        """In one line; of an out-of-memory by that name."""
        text = self.failure or self.output.read_text(errors="replace")[-4000:]
        if OUT_OF_MEMORY in text.lower() or "OutOfMemoryError" in text:
            return OUT_OF_MEMORY
        if self.process.returncode == -signal.SIGKILL:
            return KILLED
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if self.failure:
            return lines[0][:300]
        return (lines[-1] if lines else f"it ended with exit code {self.process.returncode}")[:300]


def alone(environment: Mapping[str, str], device: str) -> dict[str, str]:
    """The environment of a process that is in no group and has no agent, on the one card of this worker."""
    taken = {*OF_A_GROUP, *OF_AN_AGENT}
    own: dict[str, Any] = {name: value for name, value in environment.items() if name not in taken}
    if device.startswith("cuda"):
        cards = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
        at = int(device.partition(":")[2] or 0)
        own["CUDA_VISIBLE_DEVICES"] = cards[at] if at < len(cards) and cards[at] else str(at)
    return own
