"""One run after the other on this node: the agent of each begins when its turn in the queue has come.

A node runs by the files of one launch: config/, scripts/launch_cluster.sh. Those of a run that waits lie in
config/queue/RUN, below the names that they get; when its turn has come they are put there, and this process becomes
what they start. Whatever cuts that off, the next start looks at the queue first and does it again: the file that says
whose they are, secret.json, comes last.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from train.cluster.agent_surroundings import Outside, Signals
from train.cluster.preload import of_the_unit
from train.cluster.queue_gossip import QueueKeeper
from train.cluster.timing import TIMING
from train.errors import BadInput
from train.plan.launch.cluster_config import read_cluster
from train.runlog.queue_files import put_in_place
from train.runlog.queue_order import Entry, launch_of

SCRIPT = "scripts/launch_cluster.sh"
ENDED = (0, 1, 2)
"""The statuses of an agent whose run has ended: done, failed, or bad input on this node."""


class TurnSignals(Signals):
    """What asks this agent to end: a signal, as ever; that it is no longer its run's turn; that the queue is over."""

    def __init__(self, keeper: QueueKeeper) -> None:
        self.keeper = keeper

    def listen(self, to_stop: Callable[[int, FrameType | None], None]) -> None:
        def asked(number: int, frame: FrameType | None) -> None:
            self.keeper.is_asked_to_end = True
            to_stop(number, frame)

        super().listen(asked)

    def time_is_over(self) -> bool:
        return super().time_is_over() or self.keeper.is_to_leave() or self.keeper.is_alone()


def take_turns(keeper: QueueKeeper, run: Callable[[], int], become: Callable[[Entry], None]) -> int:
    """Runs what is here when its turn has come, and becomes the next after it: `become` returns only where that cannot
    be. The status to end with, where nothing waits for this machine, or it was asked to end."""
    status, has_run = 0, False
    while True:
        keeper.look()
        turn, is_ours = keeper.queue.turn(), keeper.queue.concerns(keeper.node)
        if (not is_ours and (has_run or keeper.queue.of(keeper.launch))) or keeper.is_alone():
            return status
        if turn and is_ours and keeper.node not in turn.names:
            keeper.outside.clock.sleep(TIMING.queue_look_s)
        elif turn and is_ours and (turn.launch != keeper.launch or has_run):
            become(turn)
            keeper.outside.clock.sleep(TIMING.queue_look_s)
        else:
            status, has_run = run(), True
            keeper.has_group = False
            if keeper.is_asked_to_end or (status not in ENDED and not keeper.has_left):
                return status  # stopped on this node alone, or it failed itself: as without a queue


def agent_in_turn(home: Path, cluster_file: Path, run: Callable[[QueueKeeper], int]) -> int:
    """The agent of the launch that is here, or of those in the queue whose turn it is."""
    cluster = read_cluster(cluster_file)
    if is_by_hand():  # whoever types this means the run that is here, and no turn
        return run(QueueKeeper(home, cluster.node, "", Outside()))
    keeper = QueueKeeper(home, cluster.node, launch_of(cluster.token), Outside())
    reported = set()

    def say(why: str) -> None:
        if why not in reported:
            reported.add(why)
            keeper.outside.say(f"{keeper.node}: {why}")

    def run_or_wait() -> int:
        try:
            return run(keeper)
        except BadInput as wrong:
            if keeper.queue.of(keeper.launch) is None:
                raise
            say(f"cannot take part in this run of the queue: {wrong}")
            wait_for_end(keeper)
            return 2
        finally:  # no agent listens any more
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def become(entry: Entry) -> None:
        try:
            if not (why := put_in_place(home, entry)):
                os.execv(home / SCRIPT, [str(home / SCRIPT)])
        except OSError as error:  # a disk that is full may have room later
            why = str(error)
        say(f"'{entry.run}' cannot begin here: {why}")

    return take_turns(keeper, run_or_wait, become)


def is_by_hand() -> bool:
    """Neither the unit nor a launch has started this process."""
    return not of_the_unit() and os.environ.get("MOTLEY_STARTED") != "launch"


def wait_for_end(keeper: QueueKeeper) -> None:
    """The others may do without this node; the next run may do with it."""
    turn = keeper.queue.turn()
    while (now := keeper.queue.turn()) and turn and now.launch == turn.launch:
        keeper.outside.clock.sleep(TIMING.queue_look_s)
        keeper.look()
