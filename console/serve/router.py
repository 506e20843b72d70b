"""Hands each request to the machine that would write its answer fastest. What a lost machine had begun goes to another,
which goes on behind the last token: the answer is whole, and nothing of it comes twice.

A machine that is lost, or whose owner or a run needs it, is looked at again and again, and used when it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import dataclass

from console.infra.node import Silent
from console.serve.choose_machine import choose
from console.serve.machine import Answer, Lost, Machine, Request

AGAIN_S = 5.0
"""Until a machine that was lost is looked at again."""
LOOK_S = 10.0
"""How often one that answers is asked whether a run or its owner needs it."""
LESS_OFTEN = 12
"""Times as long, where it has said itself why it does not serve: too little memory, no such model."""
NOBODY_S = 30.0
"""How long a request waits while no machine answers at all."""
TRIES = 4
"""Machines that are lost with the same request, until it is held for the reason."""


class Nobody(Exception):
    """No machine answers."""


@dataclass(frozen=True, slots=True)
class Waiting:
    machine: asyncio.Future[Machine]
    lost: Collection[str]
    """The machines that were lost with this request."""


class Router:
    def __init__(self, say: Callable[[str], None], *, again_s: float = AGAIN_S, look_s: float = LOOK_S) -> None:
        self.say, self.again_s, self.look_s = say, again_s, look_s
        self.machines: list[Machine] = []
        self.why: dict[str, str] = {}
        """The reason of each machine that does not answer."""
        self.waiting: deque[Waiting] = deque()
        self.tasks: list[asyncio.Task[None]] = []
        self.up = asyncio.Event()
        """One machine can be asked, or each has said why it cannot."""

    # -- machines ----------------------------------------------------------------------------------------------------

    def use(self, machines: Sequence[Machine]) -> None:
        self.machines = list(machines)
        for machine in machines:
            machine.changed = self.hand_out
        self.tasks = [asyncio.create_task(self._keep(machine)) for machine in machines]

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        for machine in self.machines:
            machine.end()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _keep(self, machine: Machine) -> None:
        while True:
            try:
                why = await needed_by(machine) or await self._served(machine)
            except Exception as error:  # one that nobody has thought of: the others serve, and who waits is told
                why = f"{type(error).__name__}: {error}"
            if self.why.get(machine.name) != why:
                self.say(f"✗ {machine.name} {'does not answer' if machine.name in self.why else 'is out'}: {why}")
            self.why[machine.name] = why
            self._settle()
            await asyncio.sleep(self.again_s * (LESS_OFTEN if machine.cannot else 1))

    async def _served(self, machine: Machine) -> str:
        """It serves as long as nobody else needs it. One that is too busy to say how it is still answers."""
        serving = asyncio.create_task(machine.serve(lambda: self._up(machine)))
        try:
            while True:
                done, _ = await asyncio.wait([serving], timeout=self.look_s)
                if done:
                    return serving.result()
                if why := await needed_by(machine, silent=""):
                    machine.end()
                    await serving
                    return why
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
            self.hand_out()

    def _up(self, machine: Machine) -> None:
        self.why.pop(machine.name, None)
        speed, slots = machine.pace.tokens_per_s(1), machine.ready["slots"]
        self.say(f"✓ {machine.name}: {speed:.1f} tokens/s by {machine.ready['ready']}, {slots} answers at once")
        self._settle()
        self.hand_out()

    def _settle(self) -> None:
        if any(machine.ready for machine in self.machines) or len(self.why) == len(self.machines):
            self.up.set()

    # -- requests ----------------------------------------------------------------------------------------------------

    def hand_out(self) -> None:
        """Gives free machines to those who wait, first come first served."""
        ready = {machine.name: machine for machine in self.machines if machine.ready}
        while self.waiting:
            first = self.waiting[0]
            if first.machine.done():  # who waited has left
                self.waiting.popleft()
                continue
            others = {name: machine for name, machine in ready.items() if name not in first.lost} or ready
            chosen = others.get(choose({name: machine.load for name, machine in others.items()}))
            if chosen is None:
                return
            chosen.reserved += 1
            self.waiting.popleft().machine.set_result(chosen)

    async def _free(self, lost: Collection[str]) -> Machine:
        """A machine with room for one more: one that was not lost with this request, where there is another. A request
        whose answer has begun comes before all who wait."""
        mine: asyncio.Future[Machine] = asyncio.get_running_loop().create_future()
        (self.waiting.appendleft if lost else self.waiting.append)(Waiting(mine, lost))
        self.hand_out()
        try:
            while not mine.done():
                await asyncio.wait([mine], timeout=NOBODY_S)
                if not mine.done() and not any(machine.ready for machine in self.machines):
                    raise Nobody(self.nobody())
            return mine.result()
        except BaseException:
            if mine.done() and not mine.cancelled():
                mine.result().reserved -= 1
                self.hand_out()
            mine.cancel()
            raise

    def nobody(self) -> str:
        return "; ".join(["no machine answers", *(f"{name}: {why}" for name, why in self.why.items())])

    async def answer(self, request: Request, answer: Answer) -> AsyncGenerator[str, None]:
        """The text as it comes; `answer` has all of it at the end."""
        lost: dict[str, str] = {}
        tries = 0
        while not answer.ended:
            machine = await self._free(lost)
            try:
                async with contextlib.aclosing(machine.answer(request, answer)) as parts:
                    async for part in parts:
                        yield part
            except Lost as why:
                lost[machine.name] = f"{machine.name} {why}".strip()
                tries += 1
                if tries == TRIES:
                    what = f"{TRIES} times a machine was lost with this request: {', '.join(lost.values())}"
                    raise Nobody(what) from None


async def needed_by(machine: Machine, silent: str | None = None) -> str:
    """Why it may not answer now; empty where it may. `silent`: what is said of one that does not say how it is."""
    try:
        facts = await asyncio.to_thread(machine.node.status)
    except Silent as why:
        return str(why) if silent is None else silent
    if facts["on"] or facts["wanted"]:
        what = f"run {facts['run']} is running" if facts["on"] else "a run begins"
        return f"{what} there and needs the memory"
    return "it is paused for its owner: ./motley unpause" if facts["paused"] else ""
