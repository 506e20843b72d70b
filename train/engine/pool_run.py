"""A process of a run whose work comes in pieces (train/pool). It trains nothing together with others, so it loses
nothing where its group changes: the piece that it does goes on, and the next group shares the list.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.clock import Clock, WorkClock
from train.engine.shutdown import Leaver
from train.errors import CheckFailed
from train.failures import classify_failure, report_to_agent
from train.files import DISK_FULL, set_aside
from train.plan.settings.read_settings import RunConfig
from train.pool import PoolRecipe
from train.pool.hand_out_pieces import Board, Watcher
from train.pool.piece_thread import Desk, Hands
from train.pool.pieces import Done, Known, Taken
from train.pool.record import Disk, Record, require_same_data
from train.runlog import paths
from train.runlog.events import EventLog, ProgressLine, person

if TYPE_CHECKING:
    import threading

    from train.parallel.process_group import World
    from train.parallel.worker_orders import Orders

LOOK_S, LIVES_S = 0.1, 5.0


@dataclass(kw_only=True)
class Outside:
    """What such a process touches outside itself, and what it computes on. tests/sim gives it a played one."""

    env: Mapping[str, str]
    clock: Clock
    disk: Disk
    log: EventLog
    orders: Orders | None
    """Its agent's, where it can stay while the group changes."""
    join: Callable[[float, Orders | None], World]
    report: Callable[[Exception, int], None]
    device: str
    precision: str


class PoolRun:
    def __init__(self, config: RunConfig, recipe: PoolRecipe, outside: Outside, *, as_json: bool = False) -> None:
        self.config, self.recipe, self.outside, self.as_json = config, recipe, outside, as_json
        self.clock, self.log, self.orders = outside.clock, outside.log, outside.orders
        self.node = outside.env.get("MOTLEY_NODE", "here")
        self.writes = writes(outside.env)
        self.progress = ProgressLine(None, recipe.total or 0)
        self.record = Record(config.checkpoint_folder() / paths.PIECES, outside.disk, writes=self.writes)
        if config.resume == "never":  # of a run by hand: a launch has set it aside
            self.record.done.clear()
            if self.writes:
                set_aside(config.checkpoint_folder())
        self.board: Board | None = None
        self.said, self.shown = "loading", 0.0
        self.notes_told: dict[int, set[str]] = {}
        """What was noted of each piece, and told to who watches. The next group's list may begin with less of it."""
        self.began = self.clock.now()
        self.desk = Desk(
            config=config, node=self.node, device=outside.device, precision=outside.precision, known=self.known,
            doing=self.doing, clock=self.clock,
        )  # fmt: skip
        self.hands = Hands(recipe, self.desk)
        self.error: Exception | None = None

    def known(self) -> Known:
        return self.board.known if self.board else Known(dict(self.record.done), {})

    # -- one group after the other -------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        while not self.in_a_group():
            assert self.orders
            self.hands.require_life(self.record.done.values())
            self.orders.obey()
        require_same_data(self.recipe, self.config, self.record.done.values())
        made = self.recipe.finish(Known(dict(self.record.done), {})) if self.writes else None
        return self.finish(made)

    def in_a_group(self) -> bool:
        """Whether all is done; else its agent has another group for this process, or will have."""
        generation = int(self.outside.env.get("MOTLEY_GENERATION", "0"))
        watcher = Watcher(done=self.tell_done, noted=self.tell_notes)
        self.board = board = Board(self.recipe, self.record, self.hands, watcher, generation, self.clock)
        self.error = None
        if self.orders:
            self.orders.tell_agent(stays=True)
        over = self.clock.event()
        self.clock.start(self.share, board, over)
        while not over.is_set():
            over.wait(LOOK_S)
            if self.hands.error:
                raise self.hands.error
            self.show_life()
            if self.orders and self.orders.arrived.is_set():
                break
        else:
            if self.error is None:
                return True
        board.close()
        if self.orders and self.orders.arrived.is_set():  # also where its thread has seen that first
            return False
        assert self.error
        if not self.orders or classify_failure(self.error) != "peer":
            raise self.error
        self.outside.report(self.error, self.orders.taken)
        return False

    def show_life(self) -> None:
        """A piece may take longer than a group's first step may: its agent sees that it goes on, as long as it does."""
        if self.hands.running and self.clock.now() > self.shown + LIVES_S:
            self.shown = self.clock.now()
            if not self.hands.hangs(list(self.record.done.values())):
                self.log.lives()

    def share(self, board: Board, over: threading.Event) -> None:
        """Takes part in the list of one group, in a thread: a store that does not answer holds up nothing else."""
        world: World | None = None
        try:
            world = self.outside.join(self.config.timeout_s, self.orders)
            names = world.gather(world.node)
            if board.is_closed:
                return
            self.begin(world, names)
            board.run(world)
        except Exception as error:
            if not board.is_closed:
                self.error = error
        finally:
            try:
                if world and world.size > 1 and self.orders:
                    world.abandon()
            finally:
                over.set()

    # -- what is told --------------------------------------------------------------------------------------------------

    def begin(self, world: World, names: list[str]) -> None:
        self.progress.out = person(self.as_json) if world.speaks else None
        facts: dict[str, Any] = {"run": self.config.run, "step": len(self.record.done), "weights": 0}
        facts |= {"total_steps": self.recipe.total or 0, "rows_per_step": 1, "rows": self.recipe.total or 0}
        self.log.write("start", **facts, nodes={name: {} for name in names}, decisions={}, identity={}, reasons=[])
        if not self.record.done:
            self.doing(self.said)

    def doing(self, what: str) -> None:
        self.said = what
        self.log.write("doing", node=self.node, what=what)

    def tell_done(self, done: Done) -> None:
        counts: dict[str, int] = {}
        for each in self.record.done.values():
            counts[each.node] = counts.get(each.node, 0) + 1
        event = {"step": len(self.record.done), "piece": done.piece.number, "node": done.node}
        event |= {"step_s": done.seconds, "words": self.recipe.words(done)}
        self.log.write("piece", **event, nodes={name: {"rows": count} for name, count in counts.items()})
        of = f" of {self.recipe.total}" if self.recipe.total else ""
        self.progress.say(f"{event['step']}{of} done · {done.node} · {done.seconds:.1f} s · {event['words']}")

    def tell_notes(self, taken: Taken) -> None:
        number = taken.piece.number
        notes_told = self.notes_told.setdefault(number, set())
        for fact in taken.notes:
            if (text := json.dumps(fact)) not in notes_told:
                notes_told.add(text)
                self.log.write("note", piece=number, node=taken.nodes[0], fact=fact)

    # -- the end -------------------------------------------------------------------------------------------------------

    def finish(self, made: Path | None) -> dict[str, Any]:
        self.recipe.close()
        seconds = round(self.clock.now() - self.began, 2)
        receipt = {"ok": True, "run": self.config.run, "steps": len(self.record.done), self.config.RESULT: str(made)}
        receipt |= {"events": str(self.config.log_folder / paths.EVENTS), "seconds": seconds}
        self.log.write("done", step=len(self.record.done), loss=None, seconds=seconds)
        self.progress.say(f"done · {len(self.record.done)} pieces\n{self.config.RESULT:<9} {made}")
        if self.as_json and self.progress.out:
            print(json.dumps(receipt))
        return receipt

    def leave(self, reason: str) -> None:
        """Told to end: what is done is on the disk, and the piece that is being done is somebody else's."""
        self.hands.leave()
        self.recipe.close()
        self.log.write("stopped", step=len(self.record.done), reason=reason)
        self.progress.say(f"stopped by {reason} with {len(self.record.done)} done; the same command goes on from there")


def computes_on(config: RunConfig, local_rank: int) -> tuple[str, str]:
    """The device of this process, and its precision."""
    import torch

    from train.models.device import precision_of

    device = f"cuda:{local_rank}" if torch.cuda.is_available() and config.device != "cpu" else "cpu"
    return device, config.precision if config.precision != "auto" else precision_of(device)


def writes(env: Mapping[str, str]) -> bool:
    """Whether this process writes its node's files: one of each node does."""
    return env.get("LOCAL_RANK", "0") == "0"


def of_this_process(config: RunConfig, leaver: Leaver | None) -> Outside:
    from train.parallel.process_group import join
    from train.parallel.worker_orders import Orders

    device, precision = computes_on(config, int(os.environ.get("LOCAL_RANK", "0")))
    return Outside(
        env=os.environ,
        clock=WorkClock(),
        disk=Disk(),
        log=EventLog(config.log_folder / paths.EVENTS if writes(os.environ) else None),
        orders=Orders.of_agent() if leaver else None,
        join=join,
        report=report_to_agent,
        device=device,
        precision=precision,
    )


def run_pool(config: RunConfig, leaver: Leaver | None, *, as_json: bool) -> dict[str, Any]:
    from train import recipes

    run = PoolRun(config, recipes.in_pieces(config), of_this_process(config, leaver), as_json=as_json)
    if leaver:
        leaver.orders, leaver.before_end = run.orders, run.leave
    try:
        return run.run()
    except OSError as error:
        what = f"{type(error).__name__}: {error}"
        if error.errno in DISK_FULL:
            what = f"{error.strerror} ({error.filename}); make room there, then launch again"
        raise CheckFailed(f"{run.node}: {what}") from error
    finally:
        run.recipe.close()
