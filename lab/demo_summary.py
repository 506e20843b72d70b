"""The end of the demo: what was proven, looked up in what the nodes wrote. What was not is an error."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median, quantiles

from console.text_layout import duration
from lab.demo_courses import KIND, MANUAL, Course
from lab.demo_sites import LOST, ROOT, Site
from lab.judge import known, right
from lab.shell import LabError
from train.plan.speed.row_split import split_rows
from train.runlog.paths import ANSWERS, EVENTS, MEMBERS, NODES
from train.runlog.state import Change, Event, history, replay, rows_of
from train.runlog.tail import read

NEXT = "./motley inventory   (your own machines: it asks three questions; then ./motley bootstrap)"
ONE_PROCESSOR = "not shown: all three folders share one processor, so all are equally fast"
WIDE = 90


class NotProvenError(LabError):
    """A promise of the demo was not kept."""


def require(kept: bool, broken: str) -> None:
    if not kept:
        raise NotProvenError(f"NOT PROVEN: {broken}\n  what the nodes wrote, where it was fetched: results/demo")


def tell_all(folder: Path, course: Course, site: Site, seconds: float) -> None:
    events = max((read(file) for file in folder.glob(f"{NODES}/*/{EVENTS}")), key=len, default=[])
    members = [event for file in sorted(folder.glob(f"{NODES}/*/{MEMBERS}")) for event in read(file)]
    _, changes = replay([*events, *members])
    steps = {event["step"]: event for event in history(change.event for change in changes)}
    answers = json.loads((folder / ANSWERS).read_text()) if (folder / ANSWERS).exists() else {}
    first, last = ends(steps, course)
    lost_at = proven(folder, course, changes, steps)
    word, better = course.measure, {"lower": "fall", "higher": "rise"}[BETTER[course.measure]]
    require(is_better(course, first, last), f"the {word} did not {better}: {first:.3f} → {last:.3f}")
    print()
    show("done", f"{len(steps)} steps, from nothing to a trained {course.result}, in {duration(seconds)}")
    begun, ended = (value(steps[step], course) for step in (1, course.max_steps))
    show(word, f"{begun:.2f} in the first step, {ended:.2f} in the last: {BETTER[word]} is better")
    show("", held_out(changes, answers, course))
    show(
        "survived", f"the {site.loss} of {LOST}: the two others trained again after {recovery_s(steps, lost_at):.0f} s"
    )
    show("", f"no step was lost; after its return {LOST} trained {rows_after_return(steps)} more rows")
    balance = against_even([steps[step] for step in sorted(steps)]) if site.unequal else [ONE_PROCESSOR]
    show("balanced", *balance)
    if answers:
        show("learned", *learned(answers["questions"]))
    if wrote := of_kind("samples", changes):
        show("learned", *(written(wrote) if course.recipe == "pretrain" else answered(wrote)))
        if course.recipe == "preference":
            show("", *politely(wrote))
    here = folder.relative_to(ROOT)
    require((folder / "report.html").is_file(), "there is no report")
    show(course.result, f"{here}/{course.result}   (what was trained; its README.md says how to use it)")
    show("report", f"{here}/report.html   (all of this on one page: open it in a browser)")
    show("stays", site.stays)
    show("next", NEXT)


def proven(folder: Path, course: Course, changes: list[Change], steps: dict[int, Event]) -> float:
    """Every promise but the loss; returns when the worker was lost."""
    max_steps = course.max_steps
    require(sorted(steps) == list(range(1, max_steps + 1)), f"of {max_steps} steps, {len(steps)} are in the event log")
    lost = [event for event in of_kind("lost", changes) if LOST in event["nodes"]]
    joined = [event for event in of_kind("joined", changes) if LOST in event["nodes"]]
    require(bool(lost), f"{LOST} was not lost")
    require(bool(joined), f"{LOST} did not rejoin before the end")
    require(rows_after_return(steps) > 0, f"{LOST} trained no row after its return")
    proofs = [event["step"] for event in of_kind("proof", changes)]
    require(bool(proofs) and proofs[-1] == max_steps, "the last step was not proven to be the same on all nodes")
    require((folder / course.result / course.weights).is_file(), f"there is no {course.result}")
    return float(min(event["time"] for event in lost))


def of_kind(kind: str, changes: list[Change]) -> list[Event]:
    return [change.event for change in changes if change.kind == kind]


def rows_after_return(steps: dict[int, Event]) -> int:
    """All of them, from the first step without the lost one on."""
    without = min((step for step, event in steps.items() if LOST not in event["nodes"]), default=0)
    later = [event for step, event in steps.items() if without and step > without and LOST in event["nodes"]]
    return sum(rows_of(event)[LOST] for event in later)


BETTER = {"loss": "lower", "reward": "higher", "margin": "higher"}
RIGHT = 0.9
"""The part of the held-out pairs that must be the right way round."""


def value(step: Event, course: Course) -> float:
    where = {"reward": step.get("rollout"), "margin": step.get("pairs")}.get(course.measure) or step
    return float(where[course.measure])


def is_better(course: Course, first: float, last: float) -> bool:
    return last > first if BETTER[course.measure] == "higher" else last < first


def ends(steps: dict[int, Event], course: Course) -> tuple[float, float]:
    """The mean of the first quarter of all steps, and of the last."""
    values = [value(steps[step], course) for step in sorted(steps)]
    quarter = max(1, len(values) // 4)
    require(len(values) > 3, "hardly a step is in the event log")
    return sum(values[:quarter]) / quarter, sum(values[-quarter:]) / quarter


def held_out(changes: list[Change], answers: Event, course: Course) -> str:
    """A line on held-out rows: the model's as it came and with adapter, if asked; else the run's own first and last."""
    events = of_kind("eval", changes)
    if course.measure == "margin":
        return pairs_right(events[-1]["metrics"])
    evals = [event["loss"] if course.measure == "loss" else event["metrics"][course.measure] for event in events]
    before, after = (answers["base"]["loss"], answers["adapter"]["loss"]) if answers else (evals[0], evals[-1])
    require(is_better(course, before, after), f"it is no better on held-out rows: {before:.3f} → {after:.3f}")
    since = "before the training" if answers or not events[0]["step"] else "at its first evaluation"
    return f"on data that was held out, never trained on: {before:.2f} {since}, {after:.2f} at the end"


def pairs_right(metrics: Event) -> str:
    right, margin = metrics["accuracy"], metrics["margin"]
    require(right >= RIGHT and margin > 0, f"of the held-out pairs {right:.0%} are the right way round")
    return f"of pairs that were held out, never trained on, {right:.0%} are the right way round, by {margin:.2f}"


def recovery_s(steps: dict[int, Event], lost_at: float) -> float:
    """From the last step with the node to the first without it, by the steps that count."""
    after = [event["time"] for event in steps.values() if event["time"] > lost_at]
    before = [event["time"] for event in steps.values() if event["time"] <= lost_at]
    return float(min(after) - max(before)) if after and before else 0.0


def against_even(steps: list[Event]) -> list[str]:
    """Both measured in this run: its first steps have even shares, until speeds are known."""
    whole = [event for event in steps if len(event["nodes"]) == 3]
    beginning = [event for event in whole[1:] if event["step"] < 10]  # the first step warms up
    even = [event for event in beginning if spread(event) <= 1]
    shared = [event for event in whole if event["step"] > 5 and spread(event) > 1]
    if len(even) < 2 or len(shared) < 3:
        return ["not measured: too few steps with equal shares, or with shares by speed"]
    slow, quick = median(map(rate, even)), median(map(rate, shared))
    if quartile(list(map(rate, shared)), 1) < quartile(list(map(rate, even)), 3):
        return ["not measurable here: steps with the same shares took too different times, so this machine was busy"]
    return [
        f"{quick / slow:.1f} times as fast as with equal shares ({quick:.1f} rows a second instead of {slow:.1f})",
        f"each machine's share of the rows, by its speed: {parts(shared)}",
    ]


def quartile(rates: list[float], which: int) -> float:
    return quantiles(rates, n=4, method="inclusive")[which - 1]


def parts(steps: list[Event]) -> str:
    """They add up to 100 %. In the order of the names: who comes back stands last in later steps."""
    names = sorted(rows_of(steps[0]))
    percent = split_rows(100, [sum(rows_of(event)[name] for event in steps) for name in names])
    return ", ".join(f"{name} {part} %" for name, part in zip(names, percent, strict=True))


def spread(event: Event) -> int:
    rows = rows_of(event).values()
    return max(rows) - min(rows)


def rate(event: Event) -> float:
    return sum(rows_of(event).values()) / float(event["step_s"])


def learned(asked: list[Event]) -> list[str]:
    """The answers themselves were shown as they came."""
    count = len(asked)
    after = sum(right(one["adapter"], one["question"], one["wanted"]) for one in asked)
    before = sum(known(one["base"], one["question"], one["wanted"]) for one in asked)
    require(bool(asked) and after == count, f"of {count} questions, {after} are answered right")
    require(before < after, "the model could answer the questions before the training as well")
    return [
        f"{after} of {count} answers are right, before the training {before} of {count}",
        "the facts are made up, and the questions were held out: these lines of the file were not used",
    ]


def written(events: list[Event]) -> list[str]:
    """At the first evaluation and at the last: a line of the model, and how much of what it wrote is words."""
    known = {word for file in MANUAL.iterdir() for word in words_of(file.read_text())}
    lines = []
    for event, when in ((events[0], f"after {events[0]['step']} steps"), (events[-1], "at the end")):
        wrote = words_of(" ".join(line["wrote"] for line in event["lines"]))
        right = sum(word in known for word in wrote) / max(1, len(wrote))
        line = event["lines"][0]
        lines += [f"{when}, {right:.0%} of the words it wrote are words of its texts:"]
        lines += [f"  {one_line(line['given'] + ' ▸ ' + line['wrote'])}"]
    return lines


def answered(events: list[Event]) -> list[str]:
    """The same held-out questions at the first evaluation, which may come before the training, and at the last."""
    first, last = events[0], events[-1]
    then = {line["given"]: line["wrote"] for line in first["lines"]}
    when = f"after {first['step']} steps" if first["step"] else "before the training"
    lines = [f"held-out questions {when}, and at the end:"]
    for line in last["lines"][:3]:
        if line["given"] in then:
            lines.append(f"  {one_line(line['given'])} ▸ {one_line(then[line['given']])} ▸ {one_line(line['wrote'])}")
    return lines


def politely(events: list[Event]) -> list[str]:
    first, last = events[0]["lines"], events[-1]["lines"]
    before, after = (sum(line["wrote"].startswith(KIND) for line in lines) for lines in (first, last))
    require(before == 0 and after > len(last) / 2, f"of {len(last)} held-out questions {after} are answered politely")
    return [
        f"{after} of {len(last)} answers begin with '{KIND}', before the training none",
        "what they say of the household is made up: so few steps teach manners, not facts (those: ./motley demo)",
    ]


def words_of(text: str) -> list[str]:
    return re.findall("[a-z]{3,}", text.lower())


def answer_lines(asked: Event) -> list[str]:
    verdict = "right" if right(asked["adapter"], asked["question"], asked["wanted"]) else f"not: {asked['wanted']}"
    return [
        f"question  {asked['question']}",
        f"  before  {one_line(asked['base'])}",
        f"  after   {one_line(asked['adapter'])}   ({verdict})",
    ]


def show(name: str, *lines: str) -> None:
    for number, line in enumerate(lines):
        print(f"{'' if number else name:<10} {line}", flush=True)


def one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WIDE else line[: WIDE - 1] + "…"
