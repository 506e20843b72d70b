"""A run in words: a calm line for each thing that happens, and the live line.

Pure: tests/unit/console/watch/test_run_in_words.py feeds it event logs of real runs.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import cast

from console.text_layout import clock, first, progress_bar
from plugins.module_utils.motley.node_replies import AgentView, NowLine
from train.runlog.events import early_words, evaluated_words, sample_line, step_words
from train.runlog.pipe_in_words import behind
from train.runlog.state import Change, Event, Gap, RunState, node_of, nodes_of, rows_of, steps_aside, why_lost
from train.runlog.trials import progress

UNHEARD_S = 8.0
SETTLING = 8
WIDE = 100
"""Characters of a terminal that has room for a bar."""
NO_BREAK = "\u00a0"

NEXT = "ask it: ./motley ask   result and event logs: ./motley fetch   on one page: ./motley report"

NEXT_OF_PIECES = "what came of it: ./motley fetch"


@dataclass(frozen=True, slots=True)
class Ended:
    ok: bool
    lines: tuple[str, ...]
    next: str = ""
    """The commands that follow, behind the first line where a person reads it."""

    @property
    def shown(self) -> tuple[str, ...]:
        return ("   ".join(filter(None, [self.lines[0], self.next])), *self.lines[1:])


@dataclass(slots=True)
class Shares:
    """Rows of each node lately, and when they have moved for long: a machine that is also used makes them vary."""

    usual: dict[str, float] = field(default_factory=dict)
    shown: dict[str, int] = field(default_factory=dict)
    settling: int = 0
    """Steps until the shares of these nodes are taken as the ones that are shown."""

    def moved(self, rows: dict[str, int]) -> str:
        if rows.keys() != self.usual.keys():
            self.usual, self.shown, self.settling = dict(rows), {}, SETTLING
        self.usual = {name: 0.8 * self.usual[name] + 0.2 * count for name, count in rows.items()}
        known, least = self.shown, max(1.0, 0.15 * sum(rows.values()))
        moves = bool(known) and any(abs(self.usual[name] - known[name]) >= least for name in rows)
        if not self.settling:
            self.settling = SETTLING if moves else 0  # shown when it has settled
            return ""
        self.settling -= 1
        if self.settling or (known and not moves):
            return ""
        now = self.shown = {name: round(usual) for name, usual in self.usual.items()}
        return ", ".join(f"{name} {known[name]} → {now[name]}" for name in rows if known and known[name] != now[name])


@dataclass(slots=True)
class RunView:
    state: RunState
    order: list[str]
    """All nodes of the launch."""
    since: dict[str, float] = field(default_factory=dict)
    """Node → when this launch began, by its own clock: what is older belongs to an earlier part of the run."""
    shares: Shares = field(default_factory=Shares)
    gpus: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    """Node → the newest time by its own clock."""
    unreachable: set[str] = field(default_factory=set)
    ended: Ended | None = None

    def take(self, node: str, kind: str, facts: Event) -> list[str]:
        """One line of a node (kind: event, member, or now for its agent's view); returns what it means in words."""
        if kind == "now":
            return self._now(node, cast(NowLine, facts))
        new = float(facts["time"]) >= self.since.get(node, 0.0)
        if not new and facts["event"] != "start":
            return []
        if facts["event"] == "up" and not {*facts["nodes"]} & {*self.order}:
            self.order = list(facts["nodes"])  # which nodes a job gets, only they themselves know
        changes = self.state.apply(facts)
        return [line for change in changes for line in self._lines(change)] if new else []

    def _lines(self, change: Change) -> list[str]:  # noqa: PLR0911, PLR0912 - one return for each kind
        event, gap = change.event, self.state.gap
        names, reason, step = ", ".join(event.get("nodes") or []), str(event.get("reason", "")), event.get("step")
        match change.kind:
            case "step":
                return self._step(event, change.gap)
            case "piece":
                return [f"{event['node']}: {event['words']}"] if self.state.trials else []
            case "start" if step and not gap:
                return [f"resumes from step {step}"]
            case "eval":
                return [evaluated_words(event)]
            case "early_stop":
                return [early_words(event)]
            case "samples":
                return [f"  {sample_line(line)}" for line in event["lines"]]
            case "profile":
                return [f"steps {event['first']}-{step} recorded on every node: ./motley fetch brings the trace"]
            case "warning":
                return [f"! {event['message']}"]
            case "woke":
                return [f"{event['node']} woke up: {reason}"]
            case "lost":
                return lost_lines(event)
            case "waiting" if gap:  # at the start the live line shows it
                return [f"… waiting: {reason}"]
            case "failed" | "stalled" | "unfit" if "epoch" in event:  # an agent's; a trainer's is shown at the end
                return [f"⚡ {names} {change.kind} at step {step}: {first(reason)}"]
            case "ended":
                self.ended = self._end()
        return []  # joined: the first step with it shows it; leaving: the end does

    def _step(self, event: Event, gap: Gap | None) -> list[str]:
        lines = [self._training_again(event, gap)] if gap else []
        if moved := self.shares.moved(rows_of(event)):
            lines.append(f"shares at step {event['step']}: {moved}")
        return lines

    def _training_again(self, event: Event, gap: Gap) -> str:
        repeated = max(0, gap.step - int(event["step"]) + 1)
        steps = f"{repeated or 'no'} step{'' if repeated == 1 else 's'} repeated"
        after = f"after {event['time'] - gap.time:.0f} s · {steps}"
        members = nodes_of(event["nodes"])
        count = f"{len(members)} of {len(self.order)}"
        back = [name for name in members if name not in gap.nodes]
        if back and len(members) > len(gap.nodes):
            return f"✓ {', '.join(back)} back · {count} at step {event['step']} {after}"
        return f"✓ training again with {count} at step {event['step']} {after}"

    def _end(self) -> Ended:
        if self.state.verdict != "done":
            return Ended(False, tuple(self.cause(self.state.why_ended)))
        if self.state.last.get("event") == "piece":
            return Ended(True, (f"done · {self.state.step} pieces",), NEXT_OF_PIECES)
        loss = f" · {step_words(self.state.last)}" if self.state.last else ""
        return Ended(True, (f"done · {self.state.step} steps{loss}",), NEXT)

    def cause(self, reason: str) -> list[str]:
        """The trainer's own sentence with node and step, where it had time for one."""
        where = f"run {self.state.run} failed"
        if failure := self.state.failure:
            where += f" on {failure['node']} in step {failure['step']}"
            reason = str(failure["message"])
        return [f"{where}: {first(reason)}", *reason.splitlines()[1:3]]

    def stopped(self, words: str) -> Ended:
        """No process is left on any node, and nobody has written why."""
        run, step = self.state.run, self.state.step
        if self.state.failure:
            return Ended(False, tuple(self.cause("")))
        if step:
            return Ended(True, (f"stopped at step {step} · resume it: ./motley launch --resume {run}",))
        lines = words.splitlines() or ["it exited without an error message"]
        return Ended(False, (f"run {run} ended before its first step: {lines[-1]}", "see: ./motley logs"))

    # -- the agent's view ----------------------------------------------------------------------------------------------

    def _now(self, node: str, facts: NowLine) -> list[str]:
        view = facts.get("now") or {}
        if float(view.get("time", 0)) < self.since.get(node, 0.0):
            return []
        self.times[node] = float(view.get("time", 0))
        if view.get("gpus"):
            self.gpus[node] = view["gpus"]
        changes = self.state.observe(view, running=bool(facts.get("on")))
        lines = [line for change in changes for line in self._lines(change)]
        return lines + (self._unreachable(node, view) if facts.get("on") else [])

    def _unreachable(self, node: str, view: AgentView) -> list[str]:
        """All were started a moment ago; a node that another cannot reach lost its power since, or never was."""
        began = max(self.since.get(node, float("inf")), float(view.get("since", 0)))  # it may have stood in a queue
        if self.state.last or float(view.get("time", 0)) - began < UNHEARD_S:
            return []
        lines = []
        for name, peer in (view.get("peers") or {}).items():
            if peer["answers"] or name not in self.order or name in self.unreachable:
                continue
            self.unreachable.add(name)
            if not peer["machine"]:
                fix = "off, or its ports are closed (./motley bootstrap --phase firewall)"
                lines.append(f"! {node} gets no answer from {name}: {fix}")
            else:
                lines.append(f"! {node} does not reach {name}: {peer['how']}   see: ./motley logs --nodes {name}")
        return lines

    # -- the live line -------------------------------------------------------------------------------------------------

    def line(self, *, bar: bool = False, waited_s: float = 0.0) -> str:
        if not self.state.last:
            return self._doing() or progress(self.state.trials) or f"{self._now_words()} · {waited_s:.0f} s"
        return "  ".join([*self._progress(bar=bar), "  ".join(self._machines()), *self._unusual()])

    def live(self, width: int, waited_s: float = 0.0) -> list[str]:
        """The line, or where a terminal is too narrow for it, progress and below it every machine."""
        whole = self.line(bar=width >= WIDE, waited_s=waited_s)
        if len(whole) <= width or not self.state.last:
            return [whole[:width]]
        words = [*self._progress(), *self._unusual()]
        words = words if len("  ".join(words)) <= width else [word for word in words if not word.endswith(" tok/s")]
        return ["  ".join(words)[:width], *(folded(self._machines(), width) or [""])]

    def _doing(self) -> str:
        """What nodes do before the run starts, each with its seconds by its own clock."""
        since = {name: float(event["time"]) for name, event in self.state.doing.items()}
        return "  ".join(
            f"{name}: {event['what']} · {max(0.0, self.times.get(name, since[name]) - since[name]):.0f} s"
            for name, event in self.state.doing.items()
        )

    def _now_words(self) -> str:
        return f"{self.state.state}{f': {self.state.reason}' if self.state.reason else ''}"

    def _unusual(self) -> list[str]:
        """The state, where the run does not simply train."""
        return [] if self.state.state in ("training", "working") else [f"({self._doing() or self._now_words()})"]

    def _progress(self, *, bar: bool = False) -> list[str]:
        state = self.state
        assert state.last
        if state.last["event"] == "piece":
            return pieces(state, bar=bar)
        done = [progress_bar(state.step / max(1, state.total))] if bar else []
        eta = f"eta {clock(state.left_s)}"
        return [f"step {state.step}/{state.total}", *done, *rates(state.last), eta]

    def _machines(self) -> list[str]:
        """What each does in a step, in the order of the launch."""
        assert self.state.last
        others, rows = behind(self.state.last), rows_of(self.state.last)
        names = sorted(rows, key=lambda name: self.order.index(name) if name in self.order else len(self.order))
        return [f"{name} {others[name].words if name in others else rows[name]}{self._gpu(name)}" for name in names]

    def _gpu(self, name: str) -> str:
        """Memory and temperature, where the run computes on a GPU."""
        used = gpu_gb(self.state.last, name)
        heat = [gpu.get("temperature.gpu", "") for gpu in self.gpus.get(name, [])]
        words = [*([f"{used:.1f} GB"] if used else []), *(f"{degrees} °C" for degrees in heat if degrees and used)]
        return f" ({', '.join(words)})" if words else ""


def folded(words: list[str], width: int) -> list[str]:
    """The words in as many lines as they need; none is broken."""
    whole = textwrap.wrap(" · ".join(word.replace(" ", NO_BREAK) for word in words), width, break_on_hyphens=False)
    return [line.strip(" ·").replace(NO_BREAK, " ") for line in whole]


def lost_lines(event: Event) -> list[str]:
    """The lines that say who was lost, and who only steps aside."""
    aside = [name for name in event["nodes"] if steps_aside(event, name)]
    lost = [name for name in event["nodes"] if name not in aside]
    return [
        f"{sign} {', '.join(names)} {what} at step {event['step']} · {why_lost(event, names)}"
        for sign, names, what in (("⚡", lost, "lost"), ("⏸", aside, "step aside" if aside[1:] else "steps aside"))
        if names
    ]


def pieces(state: RunState, *, bar: bool) -> list[str]:
    """How far a run is whose work comes in pieces, and what came of the last one."""
    done, total = state.step, state.total
    if not total:
        return [f"{done} pieces", state.last["words"]]
    shown = [progress_bar(done / total)] if bar else []
    if trials := state.trials:
        return [f"trial {done}/{total}", *shown, progress(trials), f"eta {clock(state.left_s)}"]
    return [f"piece {done}/{total}", *shown, state.last["words"], f"eta {clock(state.left_s)}"]


def rates(step: Event) -> list[str]:
    if step.get("event") == "piece":
        return [step["words"]]
    step_s = max(1e-6, float(step["step_s"]))
    rows = sum(rows_of(step).values())
    tokens = [f"{step['tokens'] / step_s:.0f} tok/s"] if step["tokens"] != rows else []  # a picture counts as one
    return [step_words(step), f"{rows / step_s:.1f} rows/s", *tokens]


def gpu_gb(step: Event, node: str) -> float:
    return max(
        (float(did.get("gpu_gb") or 0) for name, did in step["nodes"].items() if node_of(name) == node), default=0
    )
