"""What several nodes wrote, by one clock. A machine may come back from Windows an hour ahead, and from a flat battery
days behind; it trains until its clock is set. All nodes write a step at one moment, which shows how far it is off.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from train.runlog.state import Event, time_of

Key = tuple[object, ...]
Known = Mapping[Key, float]
"""Steps, with the moment of each."""


def key_of(event: Event) -> Key:
    """What all nodes write alike of a step, and of a step that is trained again otherwise; of other events nothing."""
    return tuple(event[name] for name in ("step", "loss", "step_s", "sync_s")) if event["event"] == "step" else ()


def moments(logs: Sequence[Sequence[Event]]) -> Known:
    """The steps of the log that has most of them; where its clock went back, it was wrong before."""
    most = max(([event for event in log if key_of(event)] for log in logs), key=len, default=[])
    ahead = 0.0
    times = [time_of(event) for event in most[-1:]]
    for event, after in reversed([*pairwise(most)]):
        ahead += max(0.0, time_of(event) - time_of(after))
        times.append(time_of(event) - ahead)
    count = Counter(map(key_of, most))
    return {key_of(event): time for event, time in zip(reversed(most), times, strict=True) if count[key_of(event)] == 1}


def corrected(log: Sequence[Event], known: Known) -> list[Event]:
    """An event log, in the order of its file: an event lies between the steps around it, as far from the next one as
    its own clock says."""
    right = [known.get(key_of(event)) for event in log]
    shifts = [time - time_of(event) for event, time in zip(log, right, strict=True) if time is not None]
    if not shifts:
        return list(log)
    times, shift, latest = list[float](), shifts[-1], float("inf")
    for event, time in zip(reversed(log), reversed(right), strict=True):
        if time is not None:
            shift, latest = time - time_of(event), time
        times.append(min(latest, time_of(event) + shift))
    events, earliest = list[Event](), float("-inf")
    for event, time, own in zip(log, reversed(times), right, strict=True):
        earliest = earliest if own is None else own
        events.append(event | {"time": max(earliest, time)})
    return events


def beside(events: Sequence[Event], log: Sequence[Event], known: Known) -> list[Event]:
    """What the same node wrote elsewhere, by the step that is nearest by its own clock."""
    steps = sorted((time_of(event), known[key_of(event)]) for event in log if key_of(event) in known)
    owns = [own for own, _ in steps]

    def off(time: float) -> float:
        at = bisect(owns, time)
        own, right = min(steps[max(0, at - 1) : at + 1], key=lambda step: abs(step[0] - time))
        return right - own

    return [event | {"time": time_of(event) + off(time_of(event))} for event in events] if steps else list(events)
