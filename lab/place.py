"""Where a lab's things lie and what they are called: the one home of paths and names."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from lab.shell import LabError

CACHE = Path(os.environ.get("MOTLEY_LAB_CACHE", "/var/cache/motley/lab"))
STATE = Path(os.environ.get("MOTLEY_LAB_STATE", "/var/lib/motley-lab"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One lab. Two labs with different names share nothing but the read-only bases."""

    name: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9]{0,15}", self.name):
            raise LabError(f"'{self.name}' is no lab name: a letter, then up to 15 letters or digits.", code=2)

    @property
    def root(self) -> Path:
        return STATE / self.name

    @property
    def shared(self) -> Path:
        """What all hosts share, in a lab that has such a folder."""
        return self.root / "shared"

    @property
    def cgroup(self) -> str:
        return f"motley-lab/{self.name}"

    @property
    def switch(self) -> str:
        return f"motley-{self.name}"

    @property
    def controller(self) -> str:
        return f"motley-{self.name}-controller"

    @property
    def stranger(self) -> str:
        """A machine on the same LAN that is not part of the cluster."""
        return f"motley-{self.name}-stranger"

    def host_namespace(self, host: str) -> str:
        return f"motley-{self.name}-host-{host}"

    def owns_namespace(self, namespace: str) -> bool:
        return namespace == self.switch or namespace.startswith(self.switch + "-")


def chosen(name: str | None = None) -> Place:
    return Place(name=name or os.environ.get("MOTLEY_LAB", "lab"))
