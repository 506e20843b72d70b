"""What is written: checkpoints, results, traces."""

import errno
import os
import time

from tests.train.breaks import own_rank
from train.engine import between_steps, checkpoint, checkpoint_in_memory, profiler
from train.recipes import model_card
from train.runlog import events


def forgets_checkpoint(step: int) -> None:
    """The second node was away when this one was written."""
    write = checkpoint.write

    def writing(root, at, *words, **named):
        return root / f"step-{at}" if own_rank() == 1 and at == step else write(root, at, *words, **named)

    checkpoint.write = writing


def full_disk() -> None:
    def no_room(*_, **__):
        raise OSError(28, "No space left on device")

    checkpoint.write = no_room


def full_at_the_end() -> None:
    """The adapter does not fit on the disk any more."""

    def write_result(run):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(run.config.result_folder))

    between_steps.write_result = write_result


def no_card() -> None:
    """Nothing can be said of the result."""

    def card(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/home/anna/notes.jsonl")

    model_card.card = card


def no_room_for_a_trace() -> None:
    def write_trace(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "trace")

    profiler.write_trace = write_trace


def slow_disk(seconds: int) -> None:
    """The agent's: what it brings to the disk takes long."""
    copy = checkpoint_in_memory.shutil.copytree

    def slow(*paths, **how):
        time.sleep(seconds)
        return copy(*paths, **how)

    checkpoint_in_memory.shutil.copytree = slow


def held_disk() -> None:
    """The agent's: what it brings to the disk waits until somebody lays a file "go" beside it."""
    copy = checkpoint_in_memory.shutil.copytree

    def held(source, target, **how):
        while not target.with_name("go").exists():
            time.sleep(0.02)
        return copy(source, target, **how)

    checkpoint_in_memory.shutil.copytree = held


def slow_save(seconds: int) -> None:
    """The worker's: as of many weights, of which its start tells."""
    write, told = checkpoint.write, events.EventLog.write

    def slow(*what, **how):
        time.sleep(seconds)
        return write(*what, **how)

    def tell(log, kind, **facts):
        told(log, kind, **facts | ({"weights": 168_000_000} if kind == "start" else {}))

    checkpoint.write, events.EventLog.write = slow, tell
