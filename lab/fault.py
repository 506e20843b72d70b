"""What a fault is: how it is described, done and undone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lab.host import Host
from lab.lab import Lab

Settings = dict[str, float | str]
Inject = Callable[[Lab, Host, Settings], Settings | None]
"""Breaks it and returns what undoing must know, if anything."""
Mend = Callable[[Lab, Host, Settings], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    meaning: str
    inject: Inject
    mend: Mend | None
    """None: it happens once and is over (a reboot)."""
    defaults: Mapping[str, float | str] = field(default_factory=dict)
