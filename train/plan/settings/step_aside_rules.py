"""When a machine steps aside by itself: what its owner has set, as it stands in cluster_config.yaml. No clock is read.

aside: {hours: "22:00-07:00", not_before: 1795471200, then: suspend, on_battery: pause, in_use: auto, programs: [hl2]}
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

from train.errors import BadInput
from train.plan.values import nearest

DAY = 24 * 60
ON_BATTERY = ("pause", "train")
IN_USE = ("never", "auto")
THEN = ("suspend", "poweroff")


@dataclass(frozen=True, kw_only=True, slots=True)
class AsideRules:
    hours: str = ""
    """When the node may train, by its own clock; empty: always."""
    not_before: float = 0.0
    """The time before which nothing of the whole launch trains: --at."""
    then: str = ""
    """What the machines do when the run is over; for the whole launch."""
    on_battery: str = "pause"
    in_use: str = "never"
    programs: tuple[str, ...] = ()
    """Names of programs beside which the node does not train."""


def rules(values: Any) -> AsideRules:
    if not isinstance(values, dict):
        raise BadInput(f"aside: '{values}' is not {{hours, on_battery, …}}")
    for key in values:
        if key not in AsideRules.__dataclass_fields__:
            raise BadInput(f"aside: unknown key '{key}'{nearest(str(key), AsideRules.__dataclass_fields__)}")
    windows(str(values.get("hours") or ""))
    for key, known in (("on_battery", ON_BATTERY), ("in_use", IN_USE), ("then", ("", *THEN))):
        if values.get(key, known[0]) not in known:
            raise BadInput(f"aside: {key}: '{values[key]}' is none of {', '.join(known)}")
    begin, programs = values.get("not_before") or 0, values.get("programs") or ()
    if isinstance(begin, bool) or not isinstance(begin, (int, float)):
        raise BadInput(f"aside: not_before: '{begin}' is no number of seconds")
    if not isinstance(programs, (str, list, tuple)):
        raise BadInput(f"aside: programs: '{programs}' is no list of names")
    return AsideRules(
        hours=str(values.get("hours") or ""),
        not_before=float(begin),
        then=str(values.get("then") or ""),
        on_battery=str(values.get("on_battery", ON_BATTERY[0])),
        in_use=str(values.get("in_use", IN_USE[0])),
        programs=names(programs),
    )


def names(programs: Any) -> tuple[str, ...]:
    """A list, or a text with commas."""
    listed = programs.split(",") if isinstance(programs, str) else programs
    return tuple(name for program in listed if (name := str(program).strip()))


def windows(hours: str) -> list[tuple[int, int]]:
    """`22:00-07:00`, or several with commas, as minutes of the day."""
    spans = []
    for part in filter(None, (part.strip() for part in hours.split(","))):
        match = re.fullmatch(r"(\d{1,2}):(\d\d)\s*-\s*(\d{1,2}):(\d\d)", part)
        numbers = [int(number) for number in match.groups()] if match else []
        if not match or max(numbers[::2]) > 24 or max(numbers[1::2]) > 59:
            raise BadInput(
                f"hours: '{part}' is not FROM-TO by the clock", fix='for example: motley_hours: "22:00-07:00"'
            )
        first, last = (numbers[0] * 60 + numbers[1]) % DAY, (numbers[2] * 60 + numbers[3]) % DAY
        if first == last:
            raise BadInput(f"hours: '{part}' begins where it ends", fix='for example: motley_hours: "22:00-07:00"')
        spans.append((first, last))
    return spans


def is_inside(hours: str, at: float) -> bool:
    now = time.localtime(at)
    minute = now.tm_hour * 60 + now.tm_min
    spans = windows(hours)
    return not spans or any(
        first <= minute < last if first < last else not last <= minute < first for first, last in spans
    )


def next_begin(hours: str, at: float) -> float:
    """When the next window opens."""
    return _next([first for first, _ in windows(hours)], at)


def _next(minutes: list[int], at: float) -> float:
    """When it is next one of these minutes of a day; the clock may be changed in that night."""
    now = time.localtime(at)
    times = [
        time.mktime((now.tm_year, now.tm_mon, now.tm_mday + days, minute // 60, minute % 60, 0, 0, 0, -1))
        for minute in minutes
        for days in range(3)
    ]
    return min((one for one in times if one > at), default=0.0)


def next_time(clock: str, at: float) -> float:
    """The next time that a clock here shows this: 22:00."""
    if not re.fullmatch(r"([01]?\d|2[0-3]):[0-5]\d", clock.strip()):
        raise BadInput(f"at: '{clock}' is no time of the day", fix="for example: --at 22:00")
    hour, minute = map(int, clock.split(":"))
    return _next([hour * 60 + minute], at)
