"""SIGTERM and Ctrl-C: save what is finished and leave within seconds, whatever the main thread is doing.

Python runs signal handlers only between two bytecodes of the main thread, and that may sit in a long backward pass or
wait for a dead peer. So a thread of its own is woken through the signal's file descriptor; the lock of the run keeps it
from saving half an update, and a step that is running is given up.

The same thread hears the agent's words (train/parallel/worker_orders.py).
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from train.engine.loop import Run
    from train.parallel.worker_orders import Orders

LEAVE_ON = (signal.SIGTERM, signal.SIGINT)
WORD, WORD_FILE = signal.SIGUSR1, "MOTLEY_ORDER"
WAITS = "MOTLEY_WAITS"
"""Set where a process loads beside a generation that others train in, and then waits for its agent's word."""


class Leaver:
    """Lets SIGTERM and SIGINT end this process. Set `run` once there is something to save."""

    def __init__(self, *, interrupts: bool = False) -> None:
        """`interrupts`: the process is somebody's own, with all that it holds. Ctrl-C is a KeyboardInterrupt in its
        main thread, once the run is saved."""
        self.interrupts, self.saved, self.told = interrupts, False, False
        self.telling = threading.Lock()
        self.run: Run | None = None
        self.orders: Orders | None = None
        self.before_end: Callable[[str], None] | None = None
        """What a process that trains nothing does before it ends."""
        self.wakes, self.woken = socket.socketpair()
        self.woken.setblocking(False)
        signal.set_wakeup_fd(self.woken.fileno())
        signals = (*LEAVE_ON, WORD) if WORD_FILE in os.environ else LEAVE_ON
        self.before = {number: signal.getsignal(number) for number in signals}
        for number in self.before:
            signal.signal(number, self._handle)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)  # its agent blocks the word's signal, which it takes itself
        threading.Thread(target=self._wait, name="leaver", daemon=True).start()

    def _handle(self, *_: object) -> None:
        """The C handler writes to the descriptor; nothing else is needed until all is saved."""
        if self.saved and not self.told:
            self.told = True
            raise KeyboardInterrupt

    def _interrupt(self) -> None:
        """Interrupts a main thread that may wait for the lock; a signal just before it does so would not wake it."""
        self.saved = True
        while True:
            with self.telling:
                if self.told:
                    return
                signal.pthread_kill(cast(int, threading.main_thread().ident), signal.SIGINT)
            time.sleep(0.05)

    def release(self) -> None:
        """Signals mean again what they meant before. Its thread waits on, and ends with the process."""
        signal.set_wakeup_fd(-1)
        try:
            self._restore()
        except KeyboardInterrupt:
            self._restore()
            raise

    def _restore(self) -> None:
        with self.telling:
            for number, handler in self.before.items():
                signal.signal(number, handler)
            self.told = True

    def _wait(self) -> None:
        while (number := self.wakes.recv(1)[0]) not in LEAVE_ON:  # any handled signal writes its number
            if number == WORD and self.orders:
                self.orders.hear()
        if self.run is not None:
            leave(self.run, signal.Signals(number).name)
        if self.before_end:
            self.before_end(signal.Signals(number).name)
        sys.stdout.flush()
        if self.interrupts and number == signal.SIGINT:
            self._interrupt()
            return
        os._exit(128 + number)


def leave(run: Run, reason: str) -> None:
    from train.engine.between_steps import write_checkpoint

    run.trained.lock.acquire()  # and kept: what the main thread still does to the run is neither reported nor saved
    try:
        if run.world.writes and run.step > 0:
            with beside_the_usual_stream(run.device):
                write_checkpoint(run, leaving=True)
        run.reporter.write("stopped", step=run.step, reason=reason)
        run.reporter.say(f"stopped by {reason} at step {run.step}; the same command continues from there")
    except Exception as error:
        print(f"leaving without a checkpoint of step {run.step}: {error}", file=sys.stderr)


def beside_the_usual_stream(device: str) -> AbstractContextManager[object]:
    """Another stream, on a GPU: what stands in the usual one may wait forever for a peer that is gone. The weights are
    as they should be, because every update ends with a synchronization."""
    if device == "cpu":
        return nullcontext()
    import torch

    stream: AbstractContextManager[object] = torch.cuda.stream(torch.cuda.Stream(device))
    return stream
