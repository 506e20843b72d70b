"""One machine that answers: a process there (`python -m train serve`), which ends with its connection.

No port is opened in the network: requests and answers are lines over the node's own way there, ssh or a process of this
machine. train/serve/command.py says what the lines are.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from asyncio.subprocess import PIPE
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

from console.infra.node import Node, Silent
from console.serve.choose_machine import Load, Pace

SILENT_S = 10.0
"""Without a line: a machine that is well sends one every two seconds."""
LOADING_S = 300.0
"""The same while it reads its libraries and loads the model from a slow disk."""
ENDING_S = 3.0
LONGEST_LINE = 1 << 24
OLDER = "what a launch has put there is older than this command: it comes with the next launch"

Line = dict[str, Any]


class Lost(Exception):
    """The machine, or this request on it, is lost; another one can answer."""


class Wrong(Exception):
    """What no machine can answer, and why."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as a machine gets it."""

    what: Line
    """messages or prompt, most, temperature, top_p, seed, stop."""


@dataclass(slots=True)
class Answer:
    """What there is of an answer, whoever has made it."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    ended: str = ""
    """stop or length."""
    asked: int = 0
    """The tokens of the request."""


class Machine:
    def __init__(self, node: Node, run: str) -> None:
        self.node, self.name, self.run = node, node.name, run
        self.changed: Callable[[], None] = lambda: None
        """Is called when it can take a request more."""
        self.process: asyncio.subprocess.Process | None = None
        self.ready: Line = {}
        self.pace = Pace.alone(1.0)
        self.answering: dict[int, asyncio.Queue[Line]] = {}
        self.reserved = 0
        """Requests that are on their way to it."""
        self.last_words: deque[str] = deque(maxlen=40)
        self.cannot = False
        """Whether it has said itself why it does not serve."""
        self.numbers = 0
        self.answered = 0

    @property
    def load(self) -> Load:
        slots = int(self.ready["slots"]) if self.ready else 0
        return Load(self.pace, slots, len(self.answering) + self.reserved)

    # -- its process -------------------------------------------------------------------------------------------------

    async def serve(self, up: Callable[[], None]) -> str:
        """Runs its process, and returns why it ended. `up`: called when it can be asked."""
        try:
            words = ["serve", "--run", self.run, "--home", "."]
            command = await asyncio.to_thread(self.node.train, words, {"HF_HUB_OFFLINE": "1"})
        except Silent as why:
            return str(why)
        self.last_words.clear()
        self.cannot = False
        self.process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=LONGEST_LINE, start_new_session=True
        )
        hears = asyncio.create_task(self._hear_errors(self.process))
        try:
            return await self._hear(self.process, up)
        finally:
            hears.cancel()
            self.end()
            await reaped(self.process)

    async def _hear(self, process: asyncio.subprocess.Process, up: Callable[[], None]) -> str:
        assert process.stdout
        while True:
            limit_s = SILENT_S if self.ready else LOADING_S
            try:
                raw = await asyncio.wait_for(process.stdout.readline(), limit_s)
            except TimeoutError:
                return f"it has not been heard of for {limit_s:.0f} s"
            except ValueError:
                return "it sends what is no line of an answer"
            if not raw:
                return self._why()
            line = line_of(raw)
            if "cannot" in line:
                self.cannot = True
                return str(line["cannot"])
            if "ready" in line:
                self.ready, self.pace = line, Pace.alone(float(line["seconds"]))
                up()
            elif (queue := self.answering.get(line.get("to", -1))) is not None:
                queue.put_nowait({**line, "at": asyncio.get_running_loop().time()})

    async def _hear_errors(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr
        with contextlib.suppress(ValueError):
            async for raw in process.stderr:
                self.last_words.append(raw.decode(errors="replace").rstrip())

    def _why(self) -> str:
        words = [word for word in self.last_words if word.strip()]
        if any("unknown command 'serve'" in word for word in words):
            return OLDER
        return self.node.why(words)

    def end(self) -> None:
        """Its requests are lost, and its process ends with its input; one that hangs is ended here."""
        self.ready = {}
        for queue in self.answering.values():
            queue.put_nowait({"lost": True})
        if self.process and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGTERM)

    # -- its answers -------------------------------------------------------------------------------------------------

    async def answer(self, request: Request, begun: Answer) -> AsyncGenerator[str, None]:
        """The text of an answer as it comes, from where it is begun; `begun` grows by it."""
        self.numbers += 1
        number = self.numbers
        queue = self.answering[number] = asyncio.Queue()
        self.reserved -= 1
        try:
            self._send({"ask": number, **request.what, "begun": begun.tokens, "sent": len(begun.text)})
            last = 0.0
            while not begun.ended:
                line = await queue.get()
                if "lost" in line or "failed" in line:
                    raise Lost(line.get("failed", ""))
                if "wrong" in line:
                    raise Wrong(line["wrong"])
                if "end" in line:
                    begun.ended, begun.asked = line["end"], line["asked"]
                    continue
                last = self._measure(last, line)
                begun.tokens += line["tokens"]
                begun.text += line["text"]
                if line["text"]:
                    yield line["text"]
            self.answered += 1
        finally:
            del self.answering[number]
            if not begun.ended:
                with contextlib.suppress(Lost):
                    self._send({"drop": number})
            self.changed()

    def _measure(self, last: float, line: Line) -> float:
        if last and line["tokens"]:
            self.pace = self.pace.seen(len(self.answering), (line["at"] - last) / len(line["tokens"]))
        return float(line["at"])

    def _send(self, line: Line) -> None:
        if not self.ready or not self.process or not self.process.stdin or self.process.stdin.is_closing():
            raise Lost
        self.process.stdin.write(json.dumps(line).encode() + b"\n")


async def reaped(process: asyncio.subprocess.Process) -> None:
    """One that is frozen hears no request to end."""
    try:
        await asyncio.wait_for(process.wait(), ENDING_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def line_of(raw: bytes) -> Line:
    """Only lines of ours count: a shell may print a greeting first."""
    with contextlib.suppress(ValueError):
        found = json.loads(raw)
        if isinstance(found, dict):
            return found
    return {}
