"""The end of the demo: what was proven, looked up in what the nodes wrote. What was not is an error."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

from lab.demo_sites import LOST, Site
from lab.shell import LabError
from train.runlog.paths import ANSWERS, EVENTS, MEMBERS, NODES
from train.runlog.state import Change, Event, history, replay, rows_of
from train.runlog.tail import read

ROOT = Path(__file__).parents[1]


class NotProvenError(LabError):
    """A promise of the demo was not kept."""


def require(kept: bool, broken: str) -> None:
    if not kept:
        raise NotProvenError(f"NOT PROVEN: {broken}\n  what the nodes wrote, where it was fetched: results/demo")


def tell_all(folder: Path, max_steps: int, site: Site, seconds: float) -> None:
    events = max((read(file) for file in folder.glob(f"{NODES}/*/{EVENTS}")), key=len, default=[])
    members = [event for file in sorted(folder.glob(f"{NODES}/*/{MEMBERS}")) for event in read(file)]
    _, changes = replay([*events, *members])
    steps = {event["step"]: event for event in history(change.event for change in changes)}
    answers = json.loads((folder / ANSWERS).read_text()) if (folder / ANSWERS).exists() else {}
    first, last = fall(steps)
    lost_at = proven(folder, max_steps, changes, steps)
    require(last < first, f"the loss did not fall: {first:.3f} → {last:.3f}")
    print()
    losses = f"loss {first:.2f} → {last:.2f} · held-out {held_out(changes, answers)}"
    tell("done", f"{len(steps)} steps · {losses} · {clock(seconds)}")
    gap = recovery_s(steps, lost_at)
    tell(
        "survived",
        f"the {site.loss} of {LOST}: two continued after {gap:.0f} s, nothing lost; back, it trained "
        f"{rows_after_return(steps)} rows more",
    )
    tell(
        "balanced",
        against_even([steps[step] for step in sorted(steps)])
        if site.unequal
        else "nothing to: they share one processor",
    )
    if answers:
        asked = most_changed(answers["questions"])
        tell("learned", asked["question"])
        tell("  before", one_line(asked["base"]))
        tell("  after", one_line(asked["adapter"]))
    here = folder.relative_to(ROOT)
    require((folder / "report.html").is_file(), "there is no report")
    tell("adapter", f"{here}/adapter      report  {here}/report.html")
    tell("next", site.own_machines_next)


def proven(folder: Path, max_steps: int, changes: list[Change], steps: dict[int, Event]) -> float:
    """Every promise but the loss; returns when the worker was lost."""
    require(sorted(steps) == list(range(1, max_steps + 1)), f"of {max_steps} steps, {len(steps)} are in the event log")
    lost = [event for event in of_kind("lost", changes) if LOST in event["nodes"]]
    joined = [event for event in of_kind("joined", changes) if LOST in event["nodes"]]
    require(bool(lost), f"{LOST} was not lost")
    require(bool(joined), f"{LOST} did not rejoin before the end")
    require(rows_after_return(steps) > 0, f"{LOST} trained no row after its return")
    proofs = [event["step"] for event in of_kind("proof", changes)]
    require(bool(proofs) and proofs[-1] == max_steps, "the last step was not proven to be the same on all nodes")
    require((folder / "adapter" / "adapter_model.safetensors").is_file(), "there is no adapter")
    return float(min(event["time"] for event in lost))


def of_kind(kind: str, changes: list[Change]) -> list[Event]:
    return [change.event for change in changes if change.kind == kind]


def rows_after_return(steps: dict[int, Event]) -> int:
    """All of them, from the first step without the lost one on."""
    without = min((step for step, event in steps.items() if LOST not in event["nodes"]), default=0)
    later = [event for step, event in steps.items() if without and step > without and LOST in event["nodes"]]
    return sum(rows_of(event)[LOST] for event in later)


def fall(steps: dict[int, Event]) -> tuple[float, float]:
    losses = [float(steps[step]["loss"]) for step in sorted(steps)]
    quarter = max(1, len(losses) // 4)
    require(len(losses) > 3, "hardly a step is in the event log")
    return sum(losses[:quarter]) / quarter, sum(losses[-quarter:]) / quarter


def held_out(changes: list[Change], answers: Event) -> str:
    """Of the model as it came and with its adapter, where both were asked; else the run's own, first and last."""
    evals = [event["loss"] for event in of_kind("eval", changes)]
    before, after = (answers["base"]["loss"], answers["adapter"]["loss"]) if answers else (evals[0], evals[-1])
    require(after < before, f"the loss on held-out rows did not fall: {before:.3f} → {after:.3f}")
    return f"{before:.2f} → {after:.2f}"


def recovery_s(steps: dict[int, Event], lost_at: float) -> float:
    """From the last step with the node to the first without it, as the steps that count tell."""
    after = [event["time"] for event in steps.values() if event["time"] > lost_at]
    before = [event["time"] for event in steps.values() if event["time"] <= lost_at]
    return float(min(after) - max(before)) if after and before else 0.0


def against_even(steps: list[Event]) -> str:
    """Both measured in this run: its first steps have even shares, until speeds are known."""
    whole = [event for event in steps if len(event["nodes"]) == 3]
    beginning = [event for event in whole[1:] if event["step"] < 10]  # the first step warms up
    even = [event for event in beginning if spread(event) <= 1]
    shared = [event for event in whole if event["step"] > 5 and spread(event) > 1]
    if len(even) < 2 or len(shared) < 3:
        return "too few steps of both kinds to say"
    slow, quick = median(map(rate, even)), median(map(rate, shared))
    return (
        f"{quick:.1f} rows/s with shares of {parts(shared)}, {slow:.1f} in the first steps with even ones: "
        f"{quick / slow:.1f} times as fast"
    )


def parts(steps: list[Event]) -> str:
    """In the order of the names: who comes back stands last in later steps."""
    whole = sum(sum(rows_of(event).values()) for event in steps)
    names = sorted(rows_of(steps[0]))
    return " : ".join(f"{100 * sum(rows_of(event)[name] for event in steps) / whole:.0f} %" for name in names)


def spread(event: Event) -> int:
    rows = rows_of(event).values()
    return max(rows) - min(rows)


def rate(event: Event) -> float:
    return sum(rows_of(event).values()) / float(event["step_s"])


def most_changed(asked: list[Event]) -> Event:
    """The one to show; all of them are in the report."""
    require(bool(asked), "no question was asked")
    return next((one for one in asked if one["base"].strip() != one["adapter"].strip()), asked[0])


def tell(name: str, what: str) -> None:
    print(f"{name:<10} {what}", flush=True)


def one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else line[:99] + "…"


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s all in all" if minutes else f"{rest} s all in all"
