"""Whether this node steps aside for whoever uses the machine: paused by hand, outside its hours, on battery, or in use.

It leaves the plan, so that its memory is free too; a share of zero would keep that. Its agent stays, answers the
others, and brings it back when nothing holds it off any more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train import pause
from train.cluster.may_run_here import Fitness
from train.cluster.owner_uses_machine import InUse
from train.cluster.timing import TIMING
from train.files import write_atomic
from train.plan.settings import step_aside_rules
from train.plan.settings.step_aside_rules import AsideRules
from train.power_supply import SUPPLIES, supplies
from train.runlog import paths

SOMEBODY = ("paused", "in use")
"""The rules by which somebody uses the machine."""


@dataclass(frozen=True)
class Aside:
    rule: str
    """Its owner's rule that applies: paused, begins later, hours, on battery or in use."""
    cause: str
    until: float = 0.0
    """When it will be over; 0: nobody knows."""


@dataclass
class Lasting:
    """A condition that counts when it has lasted, and is over when it has been over for long enough."""

    on_s: float
    off_s: float
    raw: bool = False
    since: float = float("-inf")
    held: bool = False

    def note(self, raw: bool, at: float) -> bool:
        if raw != self.raw:
            self.raw, self.since = raw, at
        if raw != self.held and at - self.since >= (self.on_s if raw else self.off_s):
            self.held = raw
        return self.held


class StepAside:
    def __init__(self, home: Path, rules: AsideRules, power: Path = SUPPLIES, in_use: InUse | None = None) -> None:
        self.file, self.then = home / paths.PAUSE, home / paths.THEN
        self.may_sleep, self.asked = home / paths.MAY_SLEEP, home / paths.ASKED
        self.rules, self.power = rules, power
        self.now: Aside | None = None
        self.battery = Lasting(TIMING.battery_s, TIMING.battery_s)
        self.in_use = in_use or (InUse(rules.programs) if rules.in_use == "auto" or rules.programs else None)
        self.sources: list[Callable[[float, float], Aside | None]] = [
            self._paused, self._early, self._outside, self._on_battery, self._used,
        ]  # fmt: skip

    def look(self, wall: float, at: float) -> tuple[str, str] | None:
        """What changed, as an event of members.jsonl: its kind and reason. `wall`: the time of the day; `at`: seconds
        that no change of the clock touches."""
        reasons = [aside for source in self.sources if (aside := source(wall, at))]  # all: each keeps its own time
        was, self.now = self.now, reasons[0] if reasons else None
        self._let_sleep(self.battery.held)
        if self.now and (was is None or was.cause != self.now.cause):
            return "away", self.now.cause
        return ("back", f"no longer {was.cause}") if was and not self.now else None

    def status(self, fitness: Fitness, at: float) -> dict[str, Any]:
        """This node's condition, as a part of NodeStatus. What cannot run at all is not only away."""
        own = fitness.condition(at)
        if self.now is None or own == "unfit":
            return {"condition": own, "cause": fitness.cause}
        return {"condition": "away", "cause": self.now.cause, "until": self.now.until}

    def after_the_run(self) -> str:
        """What follows here, for which root is asked as well; nothing where somebody uses the machine just now."""
        then = "" if self.now and self.now.rule in SOMEBODY else self.rules.then
        if then:
            with contextlib.suppress(OSError):
                write_atomic(self.then, f"{then}\n".encode())
        return then

    def _let_sleep(self, may: bool) -> None:
        """Lets it sleep, or not: only root can lift what keeps it awake; the unit motley-asked does, by these files."""
        if may != self.may_sleep.exists():
            with contextlib.suppress(OSError):  # a full disk must not end the run
                self.may_sleep.touch() if may else self.may_sleep.unlink()
                self.asked.touch()

    def _paused(self, wall: float, _: float) -> Aside | None:
        if paused := pause.read(self.file, wall):
            cause = f"paused {pause.words(paused.until, wall)}".rstrip()
            return Aside("paused", cause, paused.until)
        return None

    def _early(self, wall: float, _: float) -> Aside | None:
        begin = self.rules.not_before
        if wall >= begin:
            return None
        return Aside("begins later", f"the run begins later, {pause.words(begin, wall)}", begin)

    def _outside(self, wall: float, _: float) -> Aside | None:
        if step_aside_rules.is_inside(self.rules.hours, wall):
            return None
        begin = step_aside_rules.next_begin(self.rules.hours, wall)
        return Aside("hours", f"outside its hours {self.rules.hours}, {pause.words(begin, wall)}", begin)

    def _on_battery(self, _: float, at: float) -> Aside | None:
        held = self.rules.on_battery == "pause" and self.battery.note(on_battery(self.power), at)
        return Aside("on battery", "on battery") if held else None

    def _used(self, _: float, at: float) -> Aside | None:
        who = self.in_use.look(at) if self.in_use else ""
        return Aside("in use", f"in use by {who}") if who else None


def on_battery(power: Path = SUPPLIES) -> bool:
    """Whether a battery is being emptied, and no charger gives anything."""
    batteries, chargers = supplies(power)
    charged = any(charger["online"] == "1" for charger in chargers)
    return not charged and any(battery["status"] == "Discharging" for battery in batteries)
