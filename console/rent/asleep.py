"""Who gives the machine back while this one sleeps, or is off: a timer of this one, a machine at home, or nobody."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from console.rent import timer
from console.text_layout import say
from train.errors import BadInput
from train.power_supply import SUPPLIES, supplies


@dataclass(frozen=True, kw_only=True, slots=True)
class Helper:
    timer: bool = False
    keeper: str = ""
    outlives: bool = False
    """The keeper also outlives a restart of its machine: for that it has the key in a file."""

    @property
    def nobody(self) -> bool:
        return not (self.timer or self.keeper)


def is_a_laptop(root: Path = SUPPLIES) -> bool:
    """One with a battery, whose lid is closed in the evening."""
    return bool(supplies(root)[0])


def asked(helper: Helper, head: str) -> Helper:
    """Whoever rents from a laptop says who gives back while it is closed. `head`: of the machines at home."""
    say("this is a laptop: while it is closed, it cannot give the rented machine back. What shall do that?")
    if may := timer.possible():
        say("  t      a timer of this laptop, as soon as it is open again (keeps the key in a file until then)")
    say(f"  {head or 'NODE':<6} a machine at home that stays on, at the time itself")
    say("  Enter  nothing: you pay until this laptop is open again")
    word = input("who? ").strip()
    if word.lower() in ("t", "timer"):
        if not may:
            raise BadInput("this user has no systemd that could keep a timer", fix="fix: a machine at home, or nobody")
        return replace(helper, timer=True)
    return replace(helper, keeper=word)
