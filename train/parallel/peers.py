"""Who of a group has ended, where no agent watches: a process waits for a last word of each other one, and gets either
that or the end of its connection. In an exchange gloo shows it too; but who only polls the store, as one that waits for
answers, would hear of it when its patience is over. A machine without power says nothing, and closes nothing.

Who has said its last word needs none. That matters, as gloo forgets now and then, one end in some hundred, to fail what
is being sent to a process that ends at that moment: whoever waited for it alone would wait for all of `timeout_s`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

LAST_WORD = 7_000_000
"""The tag of the last word: no exchange has it."""
A_WHOLE_RUN = timedelta(days=365)


class Peers:
    def __init__(self, rank: int, size: int) -> None:
        self.others = [other for other in range(size) if other != rank]
        self.ended: list[int] = []
        """The ranks that ended without a last word."""
        self.settled = {other: threading.Event() for other in self.others}
        """Whose last word or end came here, or who has ours: there is nothing to wait for."""
        self.beside(self.hear)

    def beside(self, what: Callable[[int], None]) -> None:
        """Does this with each other rank, in a thread of its own."""
        for other in self.others:
            threading.Thread(target=what, args=(other,), name=f"rank {other}", daemon=True).start()

    def hear(self, other: int) -> None:
        try:
            dist.irecv(torch.empty(1), src=other, tag=LAST_WORD).wait(A_WHOLE_RUN)
        except RuntimeError:
            self.ended.append(other)
        self.settled[other].set()

    def say(self, other: int) -> None:
        with contextlib.suppress(RuntimeError):  # it was quicker
            dist.isend(torch.zeros(1), dst=other, tag=LAST_WORD).wait()
        self.settled[other].set()

    def say_last_word(self) -> None:
        """This process is done, and nobody needs it any more."""
        self.beside(self.say)
        for settled in self.settled.values():
            settled.wait()
