"""The process of the rewards as its owner has it: started, asked, and ended with a time limit (child.py is its inside).

It has no environment, no terminal and no folder of ours, and the same order of sets on every machine. What it prints
goes to the log, line by line and not without end.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from train.rewards.child import ChildAnswer

ROOT = Path(__file__).parents[2]
PROGRAM = (
    "import sys; sys.path.insert(0, {root!r}); from train.rewards import child; sys.path.remove({root!r}); "
    "child.main({asked}, {answered}, {parent}, {memory_bytes})"
)
TO_START = ("LD_LIBRARY_PATH",)
"""What a Python of a module system needs before its first line."""
ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONIOENCODING": "utf-8:backslashreplace"}
"""The same order of sets everywhere, and half a character, as answers have, may be printed."""
MOST_PRINTED = 20_000
"""Bytes of what one call prints; the rest is dropped, so that no disk fills."""
CHUNK = 65536
LAST_CHUNKS = 32
"""What a pipe may hold at the end, and more."""


class Lost(Exception):
    """It ended or had to be ended; the message continues a sentence that begins with the reward's name."""


class Process:
    def __init__(self, memory_bytes: int, say: Callable[[str], None]) -> None:
        asked, self.asks = os.pipe()
        self.answers, answered = os.pipe()
        self.output, printed = os.pipe()
        program = PROGRAM.format(
            root=str(ROOT), asked=asked, answered=answered, parent=os.getpid(), memory_bytes=memory_bytes
        )
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-s", "-P", "-X", "utf8", "-c", program],
                stdin=subprocess.DEVNULL, stdout=printed, stderr=printed, pass_fds=(asked, answered), cwd="/",
                env={name: os.environ[name] for name in TO_START if name in os.environ} | ENVIRONMENT,
                start_new_session=True,
            )  # fmt: skip
        finally:
            for end in (asked, answered, printed):
                os.close(end)
        for end in (self.asks, self.answers, self.output):
            os.set_blocking(end, False)
        self.say, self.printed, self.line = say, 0, b""

    def ask(self, request: Mapping[str, object], seconds: float, most_bytes: int) -> ChildAnswer:
        """Its answer; Lost where there is none in time, or none that it may give."""
        waiting, answer = memoryview(json.dumps(request, default=str).encode() + b"\n"), b""
        until, self.printed = time.monotonic() + seconds, 0
        with selectors.DefaultSelector() as ready:
            ready.register(self.asks, selectors.EVENT_WRITE)
            ready.register(self.answers, selectors.EVENT_READ)
            ready.register(self.output, selectors.EVENT_READ)
            while not answer.endswith(b"\n"):
                left = until - time.monotonic()
                events = ready.select(left) if left > 0 else []
                if not events:
                    raise Lost(f"had not answered after {seconds:g} seconds")
                for event in (key.fd for key, _ in events):
                    if event == self.output and not self.show(1):
                        ready.unregister(self.output)
                    elif event == self.asks:
                        waiting = self.write(waiting)
                        if not waiting:
                            ready.unregister(self.asks)
                    elif event == self.answers:
                        answer += self.read(most_bytes - len(answer))
        self.show()
        try:
            return cast("ChildAnswer", dict(json.loads(answer)))
        except (ValueError, TypeError):
            raise Lost("wrote into what its process answers with") from None

    def write(self, waiting: memoryview) -> memoryview:
        try:
            return waiting[os.write(self.asks, waiting[:CHUNK]) :]
        except BrokenPipeError:
            raise Lost(self.how_it_ended()) from None

    def read(self, most: int) -> bytes:
        some = os.read(self.answers, CHUNK)
        if not some:
            raise Lost(self.how_it_ended())
        if len(some) > most:
            raise Lost("wrote into what its process answers with")
        return some

    def show(self, chunks: int = LAST_CHUNKS) -> bool:
        """Hands on what is printed by now, but not without end; False when nothing more can come."""
        for _ in range(chunks):
            try:
                some = os.read(self.output, CHUNK)
            except BlockingIOError:
                return True
            before, self.printed = self.printed, self.printed + len(some)
            *lines, self.line = (self.line + some[: max(0, MOST_PRINTED - before)]).split(b"\n")
            if not some and self.line:
                lines, self.line = [*lines, self.line], b""
            for line in lines:
                self.say(line.decode(errors="replace"))
            if before <= MOST_PRINTED < self.printed:
                self.say(f"… and more than {MOST_PRINTED} bytes, which are not shown")
            if not some:
                return False
        return True

    def how_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        self.show()
        code = self.process.poll()
        if code is None:
            return "closed what its process answers with"
        if code >= 0:
            return f"ended its process (exit code {code})"
        why = ", most often for lack of memory" if code == -signal.SIGKILL else ""
        return f"was ended by {signal.Signals(-code).name}{why}"

    def close(self) -> None:
        """It can have started no other process: nothing is left."""
        self.process.kill()
        self.process.wait()
        self.show()
        for end in (self.asks, self.answers, self.output):
            os.close(end)
