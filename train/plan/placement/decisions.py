"""What `auto` becomes, with its reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from train.plan.settings.read_settings import Settings

NAMES = ("backend", "precision", "load_in", "gradient_checkpointing")


@dataclass(frozen=True)
class Decisions:
    backend: str
    precision: str
    load_in: str
    gradient_checkpointing: str
    whys: Mapping[str, str]
    """What was decided → why; empty where it is as set."""

    @property
    def reasons(self) -> list[str]:
        return [f"{what}: {why or 'as set'}" for what, why in self.whys.items()]

    def as_dict(self) -> Settings:
        return {name: value for name, value in asdict(self).items() if name != "whys"}
