"""`python -m train run`: train, alone or as one of several processes (torchrun, or any launcher that sets RANK,
WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; MOTLEY_NODE names the node).

    python -m train run --model tiny --dataset stdlib-qa --max-steps 20
    torchrun --nproc-per-node 2 -m train run --config training_config.yaml

setup.py makes everything ready, loop.py trains. A stopped run continues where it was, with any number of processes.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.engine.shutdown import WAITS, Leaver
from train.errors import BadInput, CheckFailed, Disagreement
from train.plan.settings.read_settings import SETTINGS, RunConfig, add_settings, config_of

if TYPE_CHECKING:
    from train.engine.loop import Run
    from train.parallel.process_group import World
    from train.parallel.worker_orders import Orders
    from train.recipes import Recipe


@dataclass(frozen=True, slots=True)
class Ended:
    """What a run has come to, on a process that writes files."""

    folder: Path
    """The folder of its result."""
    loss: float | None
    """The loss of the last step."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "python -m train run [--SETTING VALUE …] [--config FILE] [--json]"
    add_settings(parser, SETTINGS)


def main(args: argparse.Namespace) -> int:
    config = config_of(args)
    leaver = Leaver()
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ["MOTLEY_HOME"] = str(config.home_folder)  # rows that are still to be prepared go there too
    if config.IN_PIECES:
        from train.engine.pool_run import run_pool

        run_pool(config, leaver, as_json=bool(args.json))
        return 0
    train_run(config, leaver, as_json=bool(args.json))
    return 0


def train_run(
    config: RunConfig, leaver: Leaver | None, *, as_json: bool = False, recipe: Recipe | None = None
) -> tuple[Run, Ended | None]:
    """Trains to the end of the run; None beside it from a process that writes no files. `recipe`: where it is no module
    and no file. Where its agent tells this process of another group, it goes on in that one with all that it holds."""
    from train.parallel.worker_orders import Orders

    orders = Orders.of_agent() if leaver else None
    if leaver:
        leaver.orders = orders
    kept = before_a_group(config, orders, recipe) if orders and WAITS in os.environ else None
    while True:
        try:
            return in_a_group(config, leaver, orders, kept, as_json=as_json, recipe=recipe)
        except LeftError as left:
            kept = left.run
        gc.collect()  # of the exchange that broke off, what hangs on the weights
        assert orders
        orders.obey()


def before_a_group(config: RunConfig, orders: Orders, recipe: Recipe | None) -> Run:
    """Loads the run while the others train; its agent's word then gives it a place among them."""
    from train.engine.setup import set_up
    from train.parallel.process_group import join

    world = join(config.timeout_s, orders)
    run = set_up(config, world, None, recipe, waits=True)
    leave_group(run, world)
    orders.tell_agent(stays=True)
    orders.obey()
    return run


class LeftError(Exception):
    """The group is over, and its process stays."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run


def in_a_group(
    config: RunConfig, leaver: Leaver | None, orders: Orders | None, kept: Run | None, *, as_json: bool, recipe: Any
) -> tuple[Run, Ended | None]:
    from train.engine import between_steps, early_stop, loop
    from train.recipes import making

    started = time.perf_counter()
    run = enter_group(config, orders, kept, as_json=as_json, recipe=recipe)
    world = run.world
    if leaver:
        leaver.run = run
    if orders:
        orders.tell_agent(stays=run.strategy.outlives_its_group and not config.profile)
    ended: Ended | None = None
    stay = False
    world.watch_peers()
    try:
        loop.train(run)
        if orders:
            orders.tell_agent(stays=False)
        early_stop.conclude(run)
        if world.writes:
            result = between_steps.write_result(run)
            ended = finish(run, result, time.perf_counter() - started, as_json and world.speaks)
        world.say_last_word()
    except Exception as error:
        stay = bool(orders and stays(run, orders, error))
        raise (leave_group(run, world) if stay else fail(run, error)) from (None if stay else error)
    finally:
        if leaver and not stay:
            leaver.run = None
        if not stay and (recipe := making(run.recipe)):
            recipe.close()
    return run, ended


def enter_group(config: RunConfig, orders: Orders | None, kept: Run | None, *, as_json: bool, recipe: Any) -> Run:
    """Joins the group and sets the run up; where that fails, what this process keeps is saved or waits for the next."""
    from train.engine import between_steps
    from train.engine.setup import set_up
    from train.parallel.process_group import join
    from train.parallel.worker_orders import LeftGroupError
    from train.runlog.events import person

    world = None
    try:
        world = join(config.timeout_s, orders)
        return set_up(config, world, person(as_json) if world.speaks else None, recipe, kept)
    except Exception as error:
        if world and not isinstance(error, LeftGroupError):
            world.report_failure(error)
        if kept and orders and stays(kept, orders, error, begun=False):
            raise leave_group(kept, world) from None
        if kept and kept.step and kept.world.writes:
            between_steps.write_checkpoint(kept)
        raise


def stays(run: Run, orders: Orders, error: Exception, *, begun: bool = True) -> bool:
    """Whether this process stays: its agent has told of another group, or will, as a member of this one is gone. Whose
    group breaks twice before it has `begun` may be the reason itself."""
    from train.engine.build_or_keep_model import NotKeptError
    from train.failures import classify_failure, report_to_agent
    from train.parallel.worker_orders import is_told_to_leave

    lost = classify_failure(error) == "peer" and not isinstance(error, Disagreement | NotKeptError)
    orders.broken = 0 if begun else orders.broken + lost
    able = orders.may_stay and not run.trained.half_changed and orders.broken <= 1
    if not able or not (lost or is_told_to_leave(error)):
        orders.tell_agent(stays=False)
        return False
    if not orders.arrived.is_set():
        report_to_agent(error, orders.taken)
    return True


def leave_group(run: Run, world: World | None) -> LeftError:
    """Leaves the group: what the run has made stays, how it exchanged goes. Until it is in another group, a signal
    saves it as it is."""
    if world:
        world.abandon()
    if run.world is world:
        run.strategy.leave_group()
        run.trained.forget_gradients()
        run.reporter.close()
    return LeftError(run)


def finish(run: Run, result: Path, seconds: float, as_json: bool) -> Ended:
    from train.runlog.events import held_out_words
    from train.runlog.paths import EVENTS
    from train.runlog.state import history
    from train.runlog.tail import read

    steps = history(read(run.config.log_folder / EVENTS))
    losses = [float(event["loss"]) for event in steps]
    last = losses[-1] if losses else None
    receipt = {
        "ok": True,
        "run": run.config.run,
        "steps": run.step,
        "first_loss": losses[0] if losses else None,
        "last_loss": last,
        "best": run.milestones.best,
        run.config.RESULT: str(result),
        "events": str(run.config.log_folder / EVENTS),
        "seconds": round(seconds, 2),
    }
    run.reporter.write("done", step=run.step, loss=last, seconds=round(seconds, 2))
    run.reporter.close()
    loss = "" if last is None else f" · loss {last:.4f}"
    held_out = f" · best {held_out_words(run.milestones.best)}" if run.milestones.best else ""
    run.reporter.say(f"done · {run.step} steps{loss}{held_out}\n{run.config.RESULT:<9} {result}")
    if as_json:
        print(json.dumps(receipt))
    return Ended(result, last)


TIMED_OUT = ("timed out waiting", "collective operation timeout")
"""The words by which gloo and NCCL report a time-out."""


class StepFailedError(CheckFailed):
    """What went wrong in the loop, with the node and the step in which it did."""


def fail(run: Run, error: Exception) -> Exception:
    """Keep what is good, write down what happened, and name node and step."""
    from train.engine import between_steps, shutdown
    from train.engine.check_step import LossNotFiniteError
    from train.files import DISK_FULL
    from train.parallel.process_group import HINT

    run.trained.lock.acquire()  # and kept, as in shutdown.py: one of the two ends this process
    node, step = run.world.node, run.step + 1
    # Weights in doubt are not saved: the last proven checkpoint is the one to resume from.
    in_doubt = isinstance(error, (Disagreement, LossNotFiniteError))
    in_doubt = in_doubt or run.trained.half_changed
    if run.world.writes and not in_doubt:
        try:
            with shutdown.beside_the_usual_stream(run.device):
                between_steps.write_checkpoint(run)
        except Exception as second:  # a sick GPU gives nothing back: what made it sick is what counts
            run.reporter.warn(run.step, f"{node}: the last step could not be saved: {second}")
    trace = "".join(traceback.format_exception(error))
    run.reporter.write("failed", step=step, node=node, message=str(error), trace=trace)
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        what = f"its disk is full ({error.filename or 'the system does not say where'})"
        return StepFailedError(
            f"{node}: {what}; make room there, then continue with: ./motley launch --resume {run.config.run}"
        )
    kind = "" if isinstance(error, BadInput) else f"{type(error).__name__}: "
    first, *rest = f"{kind}{error}".splitlines() or [type(error).__name__]
    if any(sign in str(error).lower() for sign in TIMED_OUT):
        first = f"no answer for {run.world.patience.total_seconds():.0f} s{HINT}"
    return StepFailedError(f"{node}, step {step}: {first}", *rest[:2])
