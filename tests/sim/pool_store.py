"""The list of pieces of a played group: a store in the process of its first rank, and the way to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.sim.played import Machine, task

if TYPE_CHECKING:
    from tests.sim.pool import PoolWorker

AGAIN_S = 0.25
"""Until a message is sent again that has not come through."""


class LeftGroupError(Exception):
    pass


class PlayedStore:
    """Of one generation: in the process of its first rank, as long as that lives."""

    def __init__(self, host: PoolWorker, size: int) -> None:
        self.host, self.size = host, size
        self.values: dict[str, str] = {}
        self.changes = 0
        self.members: dict[int, PoolWorker] = {}
        self.had: set[int] = set()
        """Pieces that any member has brought along."""

    def put(self, name: str, value: Any) -> None:
        self.changes += 1
        self.values[name] = json.dumps([value, self.changes])

    def swap(self, name: str, before: str, value: Any) -> bool:
        if self.values.get(name, "") != before:
            return False
        self.put(name, value)
        return True


@dataclass(eq=False)
class PlayedGroup:
    """As World (train/parallel/process_group.py) has it."""

    worker: PoolWorker
    store: PlayedStore
    rank: int
    size: int
    node: str
    gathers: int = 0
    speaks: bool = False

    def abandon(self) -> None:
        pass

    def _call(self, act: Callable[[], Any]) -> Any:
        """Asks the store, and waits for as long as its machine, or the way to it, is silent."""
        host, own = self.store.host, self.worker
        self._wait(own.node.machine, host.node.machine)
        task().wait(self._takes_s())
        self._wait(own.node.machine, host.node.machine)  # it may have been cut, or ended, on the way
        answer = act()
        self._wait(host.node.machine, own.node.machine)
        return answer

    def all_are_there(self) -> bool:
        return bool(self._call(lambda: len(self.store.members) == self.size))

    def _takes_s(self) -> float:
        own, host, play = self.worker.node.machine, self.store.host.node.machine, self.worker.play
        return 0.0002 if host is own else play.takes_s(own, host) + play.takes_s(host, own)

    def _wait(self, one: Machine, other: Machine) -> None:
        host, play = self.store.host, self.worker.play
        while True:
            linked = one is other or play.reaches(one, other)
            if host.code is not None and linked:
                raise RuntimeError("tcpstore: connection closed by peer")
            if linked and not (host.life.is_held or host.life.is_over):
                return
            task().wait(AGAIN_S)

    def gather(self, value: Any) -> list[Any]:
        self.gathers += 1
        keys = [f"motley/{self.gathers}/{rank}" for rank in range(self.size)]
        self.write(keys[self.rank], json.dumps(value))
        values = [json.loads(text) for text in self._all(keys)]
        self.write(f"{keys[self.rank]}/read", "")
        if self.rank == 0:
            self._all([f"{key}/read" for key in keys])
        return values

    def _all(self, names: list[str]) -> list[Any]:
        values, pause_s = self.store.values, 0.01
        while not self._call(lambda: all(name in values for name in names)):
            self.worker.require_group()
            task().wait(pause_s)
            pause_s = min(AGAIN_S, 2 * pause_s)
        return [json.loads(values[name])[0] for name in names]

    def new_name(self, kind: str) -> str:
        self.gathers += 1
        return f"motley/{kind}/{self.gathers}"

    def change(self, name: str, alter: Callable[[Any], Any]) -> Any:
        while True:
            before = self._call(lambda: self.store.values.get(name, ""))
            found = alter(json.loads(before)[0] if before else None)
            if self._call(lambda before=before, found=found: self.store.swap(name, before, found)):
                return json.loads(json.dumps(found))

    def shared(self, name: str) -> Any:
        return self._all([name])[0]

    def write(self, name: str, text: str) -> None:
        self._call(lambda: self.store.put(name, text))

    def forget(self, name: str) -> None:
        self._call(lambda: self.store.values.pop(name, None))

    def read(self, name: str) -> str | None:
        value = self._call(lambda: self.store.values.get(name))
        return json.loads(value)[0] if value else None
