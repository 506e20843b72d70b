"""The agent's words to a worker that stays while its group changes: which place it has in the next group, or to wait.

A word is a file in the agent's memory, and SIGUSR1 says that it is there (train/engine/shutdown.py hears it). Whatever
exchange the main thread waits in then ends with LeftGroupError; gloo itself would wait for a peer that is silent. The
worker answers, in a file beside it, which word it has obeyed. A group that stood under another word is void: it takes
no new exchange, and is left as it is, because to end it is to wait for all of its members.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

WORD, ANSWER = "MOTLEY_ORDER", "MOTLEY_OBEYED"
MOST = 20
"""The most groups of one process: of each that is void something stays behind, its port too."""


TOLD = "its agent has another group for it"


class LeftGroupError(Exception):
    """The agent has told this process of another group; nothing is wrong here."""


def is_told_to_leave(error: Exception) -> bool:
    """Whether the agent's word has caused this error; ddp has one of its own, with these words in it."""
    return isinstance(error, LeftGroupError) or TOLD in str(error)


class Orders:
    def __init__(self, word: Path, answer: Path) -> None:
        self.word, self.answer = word, answer
        self.arrived, self.pulse = threading.Event(), threading.Event()
        self.lock = threading.Lock()
        self.waited_for: list[Any] = []
        """Futures that a backward pass waits for."""
        self.groups, self.taken, self.broken = 0, 0, 0

    @classmethod
    def of_agent(cls) -> Orders | None:
        files = [os.environ.get(name, "") for name in (WORD, ANSWER)]
        return cls(*map(Path, files)) if all(files) else None

    @classmethod
    def of_nobody(cls) -> Orders:
        """Orders where no agent watches: none ever arrives."""
        return cls(Path(), Path())

    # -- between groups ------------------------------------------------------------------------------------------------

    @property
    def may_stay(self) -> bool:
        return bool(self.answer.read_text())

    def tell_agent(self, *, stays: bool) -> None:
        """Tells the agent whether this process can stay, from now on."""
        self.answer.write_text(str(self.taken) if stays and self.groups < MOST else "")

    def obey(self) -> None:
        """Waits for the word that gives a place in a group, and takes it."""
        while True:
            self.arrived.wait()
            with self.lock:
                self.arrived.clear()
                self.waited_for.clear()
                order = self._read()
                self.taken = order["word"]
                self.groups += 1
            self.answer.write_text(str(self.taken))
            if order["env"]:
                os.environ.update(order["env"])
                return

    def hear(self) -> None:
        """Takes in a word, in a thread beside the main one."""
        with self.lock:
            if self._read()["word"] == self.taken:
                return
            self.arrived.set()
            for future in self.waited_for:
                fail(future, LeftGroupError(TOLD))
        self.pulse.set()

    def _read(self) -> dict[str, Any]:
        text = self.word.read_text()  # none: the signal was somebody else's, as Slurm's before a job's time is over
        return dict(json.loads(text)) if text else {"word": self.taken, "env": {}}

    # -- in a group ----------------------------------------------------------------------------------------------------

    def require_group(self) -> None:
        if self.arrived.is_set():
            raise LeftGroupError(TOLD)

    def finish(self, work: Any) -> None:
        """Waits for an exchange, as long as the group is not void."""
        done = work.get_future()
        done.add_done_callback(lambda _: self.pulse.set())
        while not done.done():
            self.require_group()
            self.pulse.wait()
            self.pulse.clear()
        work.wait()

    def future(self, work: Any, then: Callable[[], Tensor], *, on_card: bool) -> Any:
        """A future for a backward pass: `then`, once the exchange is over; an error where the group becomes void."""
        mine: Any = torch.futures.Future()

        def settle(done: Any) -> None:
            with self.lock:
                if mine.done():
                    return
                try:
                    done.value()
                    if on_card:
                        work.wait()
                    mine.set_result(then())
                except Exception as error:
                    fail(mine, error)

        def over(done: Any) -> None:
            if not on_card:
                settle(done)
                return
            # gloo says so before its copy to the card is over, in a thread that cannot wait for that itself
            threading.Thread(target=settle, args=(done,), name="gradient to the card", daemon=True).start()

        with self.lock:
            self.waited_for = [future for future in self.waited_for if not future.done()] + [mine]
            if self.arrived.is_set():
                fail(mine, LeftGroupError(TOLD))
        work.get_future().add_done_callback(over)
        return mine


def fail(future: Any, error: Exception) -> None:
    if not future.done():  # torch would spoil the result that it has
        future.set_exception(error)
