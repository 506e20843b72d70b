"""What all stories have: a seed that says everything, machines, and faults that come and go. A kind of stories adds its
world, what else happens there, and what must hold."""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tests.sim.faults import Fault
from tests.sim.truth import Broken

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster


@dataclass(frozen=True)
class Story(ABC):
    seed: int
    size: int
    faults: tuple[Fault, ...]

    KIND: ClassVar[str]
    """Its word on the command line, and how the names of its files begin."""
    PARTS: ClassVar[dict[str, type]] = {"faults": Fault}
    EASIER: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Facts of one in which less happens."""

    @classmethod
    @abstractmethod
    def of(cls, seed: int) -> Self: ...

    @abstractmethod
    def world(self) -> Cluster:
        """Where it happens."""

    def words(self) -> str:
        return f"{self.size} machines"

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        facts = {name: _in_tuples(value) for name, value in json.loads(text).items()}
        return cls(**facts | {name: tuple(part(**one) for one in facts[name]) for name, part in cls.PARTS.items()})


def _in_tuples(value: Any) -> Any:
    return tuple(map(_in_tuples, value)) if isinstance(value, list) else value


@dataclass(frozen=True)
class Outcome:
    """How a story went."""

    broken: str
    """The invariant; empty where all held."""
    journal: list[str]
    counted: dict[str, float]
    played_s: float


def play(story: Story) -> Outcome:
    broken = ""
    with closing(story.world()) as world:
        try:
            world.run()
        except Broken as error:
            broken = str(error)
    return Outcome(broken, world.play.journal, world.counted(), world.play.time)
