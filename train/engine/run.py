"""`python -m train run`: train, alone or as one of several processes (torchrun, or any launcher that sets RANK,
WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; MOTLEY_NODE names the node).

    python -m train run --model tiny --dataset stdlib-qa --max-steps 20
    torchrun --nproc-per-node 2 -m train run --config training_config.yaml

setup.py makes everything ready, loop.py trains. A stopped run continues where it was, with any number of processes.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.engine.shutdown import Leaver
from train.errors import BadInput, CheckFailed
from train.plan.config import SETTINGS, RunConfig, add_settings, config_of

if TYPE_CHECKING:
    from train.engine.loop import Run
    from train.recipes import Recipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "python -m train run [--SETTING VALUE …] [--config FILE] [--json]"
    add_settings(parser, SETTINGS)


def main(args: argparse.Namespace) -> int:
    config = config_of(args)
    leaver = Leaver()
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ["MOTLEY_HOME"] = str(config.home_folder)  # rows that are still to be prepared go there too
    train_run(config, leaver, as_json=bool(args.json))
    return 0


def train_run(
    config: RunConfig, leaver: Leaver | None, *, as_json: bool = False, recipe: Recipe | None = None
) -> tuple[Run, dict[str, Any]]:
    """The run at its end, and its receipt; none from a process that writes no files. `recipe`: where it is no module
    and no file."""
    from train.engine import early_stop, loop, milestones
    from train.engine.setup import set_up
    from train.parallel.world import join
    from train.runlog.events import person

    started = time.perf_counter()
    world = join(config.timeout_s)
    out = person(as_json) if world.speaks else None
    try:
        run = set_up(config, world, out, recipe)
    except Exception as error:
        world.report_failure(error)
        raise
    if leaver:
        leaver.run = run
    receipt: dict[str, Any] = {}
    try:
        loop.train(run)
        early_stop.conclude(run)
        if world.writes:
            made = milestones.write_result(run)
            receipt = finish(run, made, time.perf_counter() - started, as_json and world.speaks)
    except Exception as error:
        raise fail(run, error) from error
    finally:
        if leaver:
            leaver.run = None
    return run, receipt


def finish(run: Run, made: Path, seconds: float, as_json: bool) -> dict[str, Any]:
    from train.runlog.paths import EVENTS
    from train.runlog.state import history
    from train.runlog.tail import read

    steps = history(read(run.config.log_folder / EVENTS))
    losses = [event["loss"] for event in steps]
    receipt = {
        "ok": True,
        "run": run.config.run,
        "steps": run.step,
        "first_loss": losses[0] if losses else None,
        "last_loss": losses[-1] if losses else None,
        "best": run.milestones.best,
        run.config.RESULT: str(made),
        "events": str(run.config.log_folder / EVENTS),
        "seconds": round(seconds, 2),
    }
    run.reporter.write("done", step=run.step, loss=receipt["last_loss"], seconds=receipt["seconds"])
    run.reporter.close()
    loss = f" · loss {losses[-1]:.4f}" if losses else ""
    held_out = f" · best held-out loss {run.milestones.best['loss']:.4f}" if run.milestones.best else ""
    run.reporter.say(f"done · {run.step} steps{loss}{held_out}\n{run.config.RESULT:<9} {made}")
    if as_json:
        print(json.dumps(receipt))
    return receipt


TIMED_OUT = ("timed out waiting", "collective operation timeout")
"""As gloo and NCCL say it."""


class StepFailedError(CheckFailed):
    """What went wrong in the loop, with the node and the step in which it did."""


def fail(run: Run, error: Exception) -> Exception:
    """Keep what is good, write down what happened, and name node and step."""
    from train.engine import consistency, milestones, shutdown, step_event
    from train.parallel.world import HINT

    run.trained.lock.acquire()  # and kept, as in shutdown.py: one of the two ends this process
    node, step = run.world.node, run.step + 1
    # Weights in doubt are not saved: the last proven checkpoint is the one to resume from.
    in_doubt = isinstance(error, (consistency.Disagreement, step_event.LossNotFiniteError))
    in_doubt = in_doubt or run.trained.half_changed
    if run.world.writes and not in_doubt:
        try:
            with shutdown.beside_the_usual_stream(run.device):
                milestones.write_checkpoint(run)
        except Exception as second:  # a sick GPU gives nothing back: what made it sick is what counts
            run.reporter.warn(run.step, f"{node}: the last step could not be saved: {second}")
    trace = "".join(traceback.format_exception(error))
    run.reporter.write("failed", step=step, node=node, message=str(error), trace=trace)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = f"its disk is full ({error.filename or 'the system does not say where'})"
        return StepFailedError(
            f"{node}: {what}; make room there, then continue with: make launch RESUME={run.config.run}"
        )
    kind = "" if isinstance(error, BadInput) else f"{type(error).__name__}: "
    first, *rest = f"{kind}{error}".splitlines() or [type(error).__name__]
    if any(sign in str(error).lower() for sign in TIMED_OUT):
        first = f"no answer for {run.world.patience.total_seconds():.0f} s{HINT}"
    return StepFailedError(f"{node}, step {step}: {first}", *rest[:2])
