"""A played world for real agents: its time, machines, links and disks. One process, one thread, nothing waits.

Each thread of an agent is a greenlet, and whatever it waits for is an entry of one queue, ordered by played time. So a
story is the same each time it is played, and a minute of three agents takes a fifth of a second.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from train.clock import Clock
from train.cluster.agent_surroundings import Disk, Signals
from train.cluster.network import Network
from train.runlog.tail import Tail

MIDNIGHT = 1_800_000_000.0
"""The time of the day at which each story begins."""


class Play:
    """The queue of what is to happen."""

    def __init__(self, seed: int) -> None:
        self.time, self.dice = 0.0, Random(seed)
        self.queue: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self.count = 0
        self.hub = getcurrent()
        self.machines: dict[str, Machine] = {}
        self.cut: set[tuple[str, str]] = set()
        """Nothing gets from the one to the other."""
        self.lag_s: dict[tuple[str, str], float] = {}
        """What is sent from the one to the other takes up to so long: lost and sent again, or overtaken."""
        self.closed: set[str] = set()
        """Who takes no connection."""
        self.twice: set[str] = set()
        """Who hears a question that was asked it once more, some time later."""
        self.heard: Callable[[bytes], object] = len
        """What happens with each line that passes: nothing, but where a stranger listens."""
        self.journal: list[str] = []

    def at(self, due: float, call: Callable[..., object], *words: Any) -> None:
        self.count += 1
        heapq.heappush(self.queue, (due, self.count, call, words))

    def after(self, seconds: float, call: Callable[..., object], *words: Any) -> None:
        self.at(self.time + seconds, call, *words)

    def run(self, until: float) -> None:
        while self.queue and self.queue[0][0] <= until:
            due, _, call, words = heapq.heappop(self.queue)
            self.time = max(self.time, due)
            call(*words)
        self.time = until

    def note(self, text: str) -> None:
        self.journal.append(f"{self.time:8.2f}  {text}")

    def reaches(self, one: Machine, other: Machine) -> bool:
        return other.is_awake and one.is_awake and (one.name, other.name) not in self.cut

    def takes_s(self, one: Machine, other: Machine) -> float:
        lag = self.lag_s.get((one.name, other.name), 0.0)
        return 0.0004 + 0.001 * self.dice.random() + (lag * self.dice.random() if lag else 0.0)


@dataclass(eq=False)
class Machine:
    """Its disk outlives its power; its agent's lives do not."""

    play: Play
    name: str
    address: str
    is_on: bool = True
    asleep_since: float | None = None
    woke_at: float = 0.0
    slept_s: float = 0.0
    life: Life | None = None
    files: dict[Path, bytes] = field(default_factory=dict)
    changed: dict[Path, int] = field(default_factory=dict)
    disk_is_full: bool = False
    disk_takes_s: float = 0.0
    clock_off_s: float = 0.0
    taken_ports: bool = False
    paused: bool = False

    @property
    def is_awake(self) -> bool:
        return self.is_on and self.asleep_since is None


class Life:
    """One agent process from its start to its end."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.play = machine, machine.play
        self.began_at = machine.play.time
        self.tasks: dict[Task, None] = {}
        self.is_over = False
        self.frozen_since: float | None = None
        self.held: list[tuple[Task, int, bool, float]] = []
        """Who would have gone on meanwhile, and how long after the machine fell asleep."""
        self.answers: dict[int, Callable[[Any], None]] = {}
        self.to_stop: Callable[[int, None], None] | None = None
        self.agent: Any = None

    @property
    def is_held(self) -> bool:
        return self.frozen_since is not None or self.machine.asleep_since is not None

    def end(self) -> None:
        """As by SIGKILL, or because the power is gone."""
        self.is_over = True
        for task in list(self.tasks):
            if task is not getcurrent():
                task.throw(GreenletExit)

    def wake(self, since: float = math.inf) -> None:
        """Since then its machine slept, and what anybody here waits for has not come nearer; else it alone stood still,
        and time went on."""
        held, self.held = self.held, []
        for task, ticket, value, due in held:
            self.play.after(0.0 if value else max(0.0, due - since), task.resume, ticket, value)


class Task(greenlet):
    """A thread."""

    def __init__(self, life: Life, target: Callable[..., object], words: tuple[Any, ...]) -> None:
        super().__init__(parent=life.play.hub)
        self.life, self.target, self.words = life, target, words
        self.ticket = 0
        life.tasks[self] = None
        life.play.after(0.0, self.resume, 0, False)

    def run(self, *_: object) -> None:
        try:
            self.target(*self.words)
        except GreenletExit:
            pass
        finally:
            self.life.tasks.pop(self, None)

    def wait(self, seconds: float | None) -> bool:
        """Whether what it waited for has come. By the ticket an entry of the queue knows that it is too late."""
        if self.life.is_over:
            raise GreenletExit
        self.ticket += 1
        if seconds is not None:
            self.life.play.after(max(0.0, seconds), self.resume, self.ticket, False)
        return bool(self.life.play.hub.switch())

    def resume(self, ticket: int, value: bool) -> None:
        if self.dead or self.life.is_over or ticket != self.ticket:
            return
        if self.life.is_held:
            self.life.held.append((self, ticket, value, self.life.play.time))
            return
        self.ticket += 1
        self.switch(value)


def task() -> Task:
    found = getcurrent()
    assert isinstance(found, Task)
    return found


class PlayedEvent:
    def __init__(self, play: Play) -> None:
        self.play, self.flag = play, False
        self.waiting: list[tuple[Task, int]] = []

    def is_set(self) -> bool:
        return self.flag

    def clear(self) -> None:
        self.flag = False

    def set(self) -> None:
        self.flag = True
        waiting, self.waiting = self.waiting, []
        for one, ticket in waiting:
            self.play.after(0.0, one.resume, ticket, True)

    def wait(self, seconds: float | None = None) -> bool:
        if self.flag:
            return True
        me = task()
        self.waiting = [(one, ticket) for one, ticket in self.waiting if ticket == one.ticket]
        self.waiting.append((me, me.ticket + 1))
        return me.wait(seconds)


class PlayedLock:
    def __init__(self, play: Play) -> None:
        self.free = PlayedEvent(play)
        self.holder: Task | None = None

    def __enter__(self) -> None:
        while self.holder:
            self.free.wait()
        self.free.clear()
        self.holder = task()

    def __exit__(self, *_: object) -> None:
        self.holder = None
        self.free.set()


class PlayedClock(Clock):
    def __init__(self, life: Life) -> None:
        self.life = life

    def now(self) -> float:
        return 1000.0 + self.life.play.time

    def wall(self) -> float:
        return MIDNIGHT + self.life.play.time + self.life.machine.clock_off_s

    def sleep(self, seconds: float) -> None:
        task().wait(seconds)

    def event(self) -> Any:
        return PlayedEvent(self.life.play)

    def lock(self) -> Any:
        return PlayedLock(self.life.play)

    def start(self, target: Callable[..., object], *args: Any) -> None:
        Task(self.life, target, args)


class PlayedWorkClock(PlayedClock):
    def now(self) -> float:
        return super().now() - self.life.machine.slept_s


class Asked:
    """A connection, on the side of who asks."""

    def __init__(self, life: Life, machine: Machine, port: int) -> None:
        self.life, self.play, self.machine, self.port = life, life.play, machine, port
        self.answer = b""
        self.came = PlayedEvent(self.play)

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send(self, line: bytes, _: float) -> None:
        play, own = self.play, self.life.machine
        play.heard(line)
        if play.reaches(own, self.machine):
            play.after(play.takes_s(own, self.machine), self._deliver, line)
            if self.machine.name in play.twice:
                play.after(6 * play.dice.random(), self._deliver, line)

    def _deliver(self, line: bytes) -> None:
        life = self.machine.life
        if life and not life.is_over and self.port in life.answers and self.machine.is_awake:
            if life.is_held:
                self.play.after(0.3, self._deliver, line)  # it lies in the socket of a process that is stopped
            else:
                life.answers[self.port](Answered(self, life.machine, line))

    def back(self, line: bytes) -> None:
        self.answer = line
        self.came.set()

    def line(self, deadline: float) -> bytes:
        if not self.came.wait(deadline - 1000.0 - self.play.time) or not self.answer:
            raise TimeoutError
        return self.answer


class Answered:
    """The same, on the side of who answers: what was asked is there, so it waits for nothing."""

    def __init__(self, asked: Asked, machine: Machine, line: bytes) -> None:
        self.asked, self.machine, self.read = asked, machine, line

    def line(self, _: float) -> bytes:
        return self.read

    def send(self, line: bytes, _: float) -> None:
        play, other = self.asked.play, self.asked.life.machine
        play.heard(line)
        if play.reaches(self.machine, other):
            play.after(play.takes_s(self.machine, other), self.asked.back, line)


class PlayedNetwork(Network):
    def __init__(self, life: Life) -> None:
        self.life, self.play = life, life.play

    def serve(self, _: str, port: int, answer: Callable[[Any], None]) -> None:
        self.life.answers[port] = answer

    def connect(self, address: str, port: int, limit_s: float) -> Any:
        own = self.life.machine
        other = next(machine for machine in self.play.machines.values() if machine.address == address)
        there_s = self.play.takes_s(own, other) + self.play.takes_s(other, own)
        linked = self.play.reaches(own, other) and self.play.reaches(other, own)
        if there_s >= limit_s or not linked or other.name in self.play.closed:
            task().wait(limit_s)
            raise TimeoutError
        task().wait(there_s)
        if other.life is None or other.life.is_over or port not in other.life.answers:
            raise ConnectionRefusedError
        return Asked(self.life, other, port)

    def is_free(self, port: int) -> bool:
        return not (self.life.machine.taken_ports and port % 2)


class PlayedTail(Tail):
    def __init__(self, machine: Machine, file: Path) -> None:
        super().__init__(file)
        self.machine = machine

    def read(self) -> bytes:
        whole = self.machine.files.get(self.file, b"")
        self.offset = min(self.offset, len(whole))
        if self.offset == len(whole):
            return b""
        data = whole[self.offset : whole.rfind(b"\n") + 1]
        self.offset += len(data)
        return data


class PlayedDisk(Disk):
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def _keep(self, file: Path, data: bytes) -> None:
        machine = self.machine
        machine.changed[file] = machine.changed.get(file, 0) + 1
        if machine.disk_takes_s and isinstance(getcurrent(), Task):
            task().wait(machine.disk_takes_s * machine.play.dice.random())
        if machine.disk_is_full:
            raise OSError(28, "No space left on device")
        machine.files[file] = data

    def read(self, file: Path) -> str:
        if file not in self.machine.files:
            raise FileNotFoundError(file)
        return self.machine.files[file].decode()

    def changed_ns(self, file: Path) -> int:
        if file not in self.machine.changed:
            raise FileNotFoundError(file)
        return self.machine.changed[file]

    def tail(self, file: Path, last_bytes: int) -> Tail:
        return PlayedTail(self.machine, file)

    def write(self, file: Path, text: str) -> None:
        self._keep(file, text.encode())

    def show(self, file: Path, text: str) -> None:
        self._keep(file, text.encode())

    def append(self, file: Path, lines: str) -> None:
        before = self.machine.files.get(file, b"")
        self._keep(file, before[: before.rfind(b"\n") + 1] + lines.encode())

    def make_folder(self, folder: Path) -> None:
        pass

    def set_aside(self, folder: Path) -> None:
        pass


class PlayedSignals(Signals):
    def __init__(self, life: Life) -> None:
        self.life = life

    def listen(self, to_stop: Callable[[int, Any], None]) -> None:
        self.life.to_stop = to_stop

    def time_is_over(self) -> bool:
        return False
