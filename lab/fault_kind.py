"""What a fault is: what it means, how it is made and how it is undone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lab.host import Host
from lab.lab import Lab

Settings = dict[str, float | str]
Inject = Callable[[Lab, Host, Settings], Settings | None]
"""Breaks it and returns what its fix must know, if anything."""
Fix = Callable[[Lab, Host, Settings], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    meaning: str
    inject: Inject
    fix: Fix | None
    """None: it happens once and is over (a reboot)."""
    defaults: Mapping[str, float | str] = field(default_factory=dict)


def on_host(act: Callable[[Host], object]) -> Fix:
    """What concerns the host alone."""

    def do(_: Lab, host: Host, __: Settings) -> None:
        act(host)

    return do


def command(*argv: str, stdin: str | None = None, check: bool = True) -> Fix:
    """A program as root in the host."""
    return on_host(lambda host: host.run(*argv, stdin=stdin, check=check))
