"""What happened to a run's machines, for its report: each thing once, of the machine that it happened to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from console.text_layout import first
from train.runlog.events import early_words
from train.runlog.state import Change, Event, steps_aside, time_of, why_lost

OTHER_SIDE_S = 60.0
"""So long before it is given up, a machine that was cut off already waits for the others."""


class Told(Protocol):
    news: list[Event]

    @property
    def began(self) -> float: ...


def happened(changes: list[Change]) -> list[Event]:
    """Lost, returned, failed, warned; a loss and what the others or the lost one itself wrote of it are one."""
    away: set[str] = set()
    cut_off = list(absences(changes))
    last_step = max((time_of(change.event) for change in changes if change.kind == "step"), default=0.0)
    news = []
    for change in changes:
        event = change.event
        if "epoch" not in event:
            news += of_trainer(change)
            continue
        names = [str(name) for name in event.get("nodes") or [event["node"]]]
        reason = str(event.get("reason", ""))
        if change.kind == "lost":
            names = [name for name in names if name not in away]
            leaves = any(event.get("how", {}).get(name) == "leaving" for name in names)
            if not (leaves and time_of(event) > last_step):  # else told to stop, as all the others
                news += [word(event, what) | {"names": who, "aside": aside} for who, what, aside in left(event, names)]
            away |= set(names)
        elif change.kind == "joined":
            back = all(name in away for name in names)
            news.append(word(event, f"{', '.join(names)} {'back' if back else 'joined'}") | {"names": names})
            away -= set(names)
        elif change.kind == "waiting":
            there = not any(node == event["node"] and low <= event["time"] <= high for node, low, high in cut_off)
            if there and event.get("nodes"):  # else it only waits for its turn
                news.append(word(event, f"{event['node']} waits: {reason.removeprefix('waiting ')}"))
        elif change.kind == "woke":
            news.append(word(event, f"{event['node']} woke: {reason}"))
        elif change.kind in ("failed", "stalled", "unfit"):
            news.append(word(event, f"{', '.join(names)} {change.kind}: {cause(reason, names)}"))
    return news


def of_trainer(change: Change) -> list[Event]:
    """The news that a trainer writes, without failures: they are the outcome, or echo a loss that the agents name."""
    event = change.event
    match change.kind:
        case "warning":
            text = event["message"]
        case "balance":
            text = event["reason"]
        case "early_stop":
            text = early_words(event)
        case _:
            return []
    return [word(event, text) | {"mark": False, "quiet": change.kind == "balance"}]


def absences(changes: Iterable[Change]) -> Iterator[tuple[str, float, float]]:
    """Yields who was cut off, from when to when."""
    since: dict[str, float] = {}
    for change in changes:
        for name in change.event.get("nodes", ()) if change.kind in ("lost", "joined") else ():
            if change.kind == "lost":
                since.setdefault(name, time_of(change.event) - OTHER_SIDE_S)
            elif name in since:
                yield name, since.pop(name), time_of(change.event)
    yield from ((name, low, float("inf")) for name, low in since.items())


def word(event: Event, what: str) -> Event:
    return {"kind": event["event"], "time": event["time"], "step": event.get("step"), "what": what, "mark": True}


def left(event: Event, names: list[str]) -> Iterator[tuple[list[str], str, bool]]:
    """Yields the nodes that were lost and those that only step aside, each with its words."""
    aside = [name for name in names if steps_aside(event, name)]
    if lost := [name for name in names if name not in aside]:
        yield lost, f"{', '.join(lost)} lost ({why_lost(event, lost)})", False
    if aside:
        yield aside, f"{', '.join(aside)} {'step' if aside[1:] else 'steps'} aside: {why_lost(event, aside)}", True


def cause(reason: str, names: list[str]) -> str:
    for name in names:
        reason = reason.removeprefix(f"{name}: ")
    return first(reason)


def numbered(history: Told) -> list[Event]:
    """The news since the start, with their numbers on the charts. Before it nodes only waited for each other."""
    items, marks, began = list[Event](), 0, history.began
    for item in history.news:
        if item["time"] >= began:
            marks += item["mark"]
            label = str(marks) if item["mark"] else ""
            items.append({**item, "label": label, "after_s": item["time"] - began})
    return items
