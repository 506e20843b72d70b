"""What two machines' event logs prove: pure functions of what `./motley fetch` brings. A pair of figures is
{node: {"events": […], "members": […]}}, cut to what is needed by `cut`."""

from __future__ import annotations

import re
import statistics
from typing import Any

from tests.gpu.line import Figures, Verdict, together

Event = dict[str, Any]
Logs = dict[str, dict[str, list[Event]]]
KEPT = {
    "start": ("step", "nodes", "total_steps"),
    "step": ("step", "loss", "tokens", "step_s", "nodes"),
    "proof": ("step", "adapter"),
    "checkpoint": ("step",),
    "failed": ("step", "node", "message"),
    "done": ("step",),
}
NEEDED = (1, 25, 200)
SETTLES = 20
"""Steps that are not counted where a speed is measured."""


def cut(events: list[Event]) -> list[Event]:
    """Small enough to keep; of a step's nodes only the names and rows."""
    found = []
    for event in events:
        if names := KEPT.get(event["event"]):
            one = {"event": event["event"], "time": event["time"], **{name: event[name] for name in names}}
            if event["event"] == "step":
                one["nodes"] = {name: did["rows"] for name, did in event["nodes"].items()}
            found.append(one)
    return found


def of_kind(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["event"] == kind]


def history(logs: Logs) -> list[Event]:
    """Of both: where a run went on at step k, what had been trained beyond k was taken back."""
    kept: dict[int, Event] = {}
    for event in sorted((event for log in logs.values() for event in log["events"]), key=lambda event: event["time"]):
        if event["event"] == "start":
            kept = {step: one for step, one in kept.items() if step <= event["step"]}
        elif event["event"] == "step":
            kept[event["step"]] = event
    return [kept[step] for step in sorted(kept)]


def judge_adapters(values: Figures) -> Verdict:
    logs: Logs = values["logs"]
    proofs = {
        name: {event["step"]: event["adapter"] for event in of_kind(log["events"], "proof")}
        for name, log in logs.items()
    }
    parts = []
    for step in NEEDED:
        found = {name: told.get(step) for name, told in proofs.items()}
        same = None not in found.values() and len(set(found.values())) == 1
        parts.append((same, f"step {step} bit for bit" if same else f"after step {step}: {short(found)}"))
    both = bool(logs) and all(len(one["nodes"]) == 2 for one in history(logs))
    keep = f"keep it for both: motley_render_environment: {{MOTLEY_CARDS_ALIKE: '{values.get('alike', '')}'}}"
    took_part = (both and len(logs) == 2, "both took part" if both else "not both took part in every step")
    return together(took_part, *parts, (True, keep))


def short(found: dict[str, str | None]) -> str:
    return ", ".join(f"{name} {(told or 'nothing')[:8]}" for name, told in found.items())


def judge_loss(values: Figures) -> Verdict:
    """After a kill -9, a pulled cable, a sleep: seconds until training again, who saved what, nothing lost."""
    logs, at, victim, other = values["logs"], values["at"], values["victim"], values["other"]
    own = logs[other]["events"]
    again = first_step_after_start(own, at)
    last = max((event["step"] for event in of_kind(own, "step") if event["time"] <= at), default=0)
    back = next(
        (
            event
            for event in of_kind(own, "step")
            if again and event["time"] >= again["time"] and victim in event["nodes"]
        ),
        None,
    )
    begun = [event["step"] for event in of_kind(own, "start") if event["time"] > at]
    repeated = max(0, last - begun[0]) if begun else 0
    steps = [event["step"] for event in history(logs)]
    whole = bool(steps) and steps == list(range(1, steps[-1] + 1))
    next_s = again["time"] - at if again else float("inf")
    return together(
        (next_s <= values["limit_s"], f"training again after {next_s:.1f} s" if again else "nobody trained again"),
        (back is not None, f"with {victim} after {back['time'] - at:.1f} s" if back else f"{victim} did not come back"),
        (repeated <= values["save_every"], f"{repeated} steps repeated"),
        (whole, f"{len(steps)} steps without a gap" if whole else "steps are missing"),
        (True, saved(logs, at)),
    )


def first_step_after_start(events: list[Event], at: float) -> Event | None:
    started = False
    for event in events:
        started = started or (event["event"] == "start" and event["time"] > at)
        if started and event["event"] == "step":
            return event
    return None


def saved(logs: Logs, at: float) -> str:
    """Who saved which step first after it happened."""
    told = []
    for name, log in logs.items():
        first = next((event for event in of_kind(log["events"], "checkpoint") if event["time"] > at), None)
        told.append(f"{name} step {first['step']} after {first['time'] - at:.1f} s" if first else f"{name} nothing")
    return f"saved: {', '.join(told)}"


USING = re.compile(r"NET/Socket\s*:\s*Using\s*\[0\]([^:\s]+):")
NAMED = re.compile(r"NCCL_SOCKET_IFNAME set by environment to =?(\S+)")


def judge_nccl(values: Figures) -> Verdict:
    """From the nodes' journals under NCCL_DEBUG=INFO, and their event logs."""
    parts = []
    for name, text in values["journals"].items():
        named, using = NAMED.findall(text), USING.findall(text)
        right = bool(using) and bool(named) and set(using) == set(named)
        parts.append((right, f"{name} over {using[-1]}" if right else f"{name} was to use {named}, used {using}"))
    steps = history(values["logs"])
    both = bool(steps) and len(steps[-1]["nodes"]) == 2
    return together((len(parts) == 2 and both, f"{len(steps)} steps together"), *parts)


def judge_cuda_after_suspend(values: Figures) -> Verdict:
    found = values["selftest"]
    failures = "; ".join(found.get("failures", [])) or "it did not answer"
    slept = values["slept_s"] >= values["asked_s"]
    return together(
        (slept, f"slept {values['slept_s']:.0f} s"),
        (found.get("ok") is True, "the card computes afterwards" if found.get("ok") else f"afterwards: {failures}"),
    )


def judge_hour(values: Figures) -> Verdict:
    """Tokens a second of both against the better one alone, over what was trained of each."""
    pair, alone = speed(values["logs"]), speed(values["alone"])
    minutes = minutes_of(values["logs"])
    bad = [
        event["event"]
        for log in values["logs"].values()
        for event in log["members"]
        if event["event"] in ("lost", "failed", "stalled", "unfit")
    ]
    return together(
        (minutes >= values["minutes"], f"{minutes:.0f} minutes"),
        (not bad, "nobody was lost" if not bad else f"members told {sorted(set(bad))}"),
        (pair > alone > 0, f"{pair:.0f} tokens/s together, {alone:.0f} alone: {pair / max(alone, 1e-9):.2f} times"),
    )


def speed(logs: Logs) -> float:
    steps = history(logs)[SETTLES:]
    return statistics.median(step["tokens"] / step["step_s"] for step in steps) if steps else 0.0


def minutes_of(logs: Logs) -> float:
    times = [event["time"] for event in history(logs)]
    return (times[-1] - times[0]) / 60 if times else 0.0
