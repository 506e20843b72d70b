"""`profile: 20-23`: torch.profiler over these steps. Each process writes what it saw beside its log when the last of
them is over, small enough to travel (runlog/trace.py). No stacks and no shapes: they would cost more than the steps.

What goes wrong here is a warning: no run ends because nobody could watch it.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

import torch

from train.plan.settings.profile import ends_of, named, profiled_steps, to_record
from train.runlog.paths import TRACES
from train.runlog.trace import STEP, read_trace, write_trace

if TYPE_CHECKING:
    from train.engine.loop import Run


class Profile:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.file = run.config.log_folder / TRACES.replace("*", str(run.world.local_rank))
        self.steps, why_not = to_record(run.config.profile, run.step, run.total_steps)
        self.profiler: Any = None
        self.label: Any = None
        if run.step == 0:
            self.file.unlink(missing_ok=True)  # of an older run of this name
        if why_not and not self._has(profiled_steps(run.config.profile)):
            run.reporter.warn(run.step, why_not)

    def begin(self, step: int) -> bool:
        """Called before a step. Whether recording has begun with it: that takes a moment which is not the step's."""
        begins = step == self.steps.start and bool(self.steps)
        if begins:
            self._try(self._start)
        if self.profiler:
            self.label = torch.profiler.record_function(f"{STEP}{step}")
            self.label.__enter__()
        return begins

    def end(self, step: int) -> bool:
        """Called after a step. Whether it was the last that is recorded."""
        if self.profiler is None:
            return False
        self.label.__exit__(None, None, None)
        if step + 1 in self.steps:
            return False
        self._try(self._write)
        self.profiler = None
        return True

    def conclude(self, step: int) -> None:
        """Called after the last step, which `patience` may have made the last before all of these were recorded."""
        if self.steps.stop <= step + 1:
            return
        if self.profiler:
            self.steps = range(self.steps.start, step + 1)
            self._try(self._write)
        else:
            self.run.reporter.warn(step, to_record(self.run.config.profile, step, step)[1])

    def _has(self, steps: range) -> bool:
        """Whether a recording of these steps is there from before a restart."""
        with contextlib.suppress(Exception):  # none is there, or it is torn
            return bool(read_trace(self.file)["motley"]["steps"] == ends_of(steps))
        return False

    def _start(self) -> None:
        kinds = torch.profiler.ProfilerActivity
        kinds = [kinds.CPU, *([kinds.CUDA] if self.run.device != "cpu" else [])]
        profiler = torch.profiler.profile(activities=kinds)
        profiler.start()
        self.profiler = profiler

    def _write(self) -> None:
        run, began = self.run, time.perf_counter()
        self.profiler.stop()
        seen = self.file.with_name(f".{self.file.name}.{os.getpid()}.json")
        facts = {
            "run": run.config.run,
            "process": run.workers.names[run.world.rank],
            "processes": list(run.workers.names),
            "steps": ends_of(self.steps),
        }
        try:
            self.profiler.export_chrome_trace(str(seen))
            size = write_trace(self.file, seen, facts)
        finally:
            seen.unlink(missing_ok=True)
        took_s = round(time.perf_counter() - began, 3)
        run.reporter.write("profile", step=run.step, first=self.steps.start, bytes=size, seconds=took_s)
        run.reporter.say(f"steps {named(self.steps)} recorded: {self.file} ({size / 1e6:.1f} MB)")

    def _try(self, act: Any) -> None:
        try:
            act()
        except Exception as error:
            node, steps = self.run.world.node, named(self.steps)
            message = f"{node}: steps {steps} could not be recorded: {type(error).__name__}: {error}"
            self.run.reporter.warn(self.run.step, message)
