"""Who trains: the agents' decisions as one pure function. `decide` takes what a node knows and returns what it is to
do; no clock, socket, file or process is touched here. tests/train/test_membership.py tries it on all orders of events.

A plan {epoch, host, members} is made by its host alone and is followed only while that host still says it.

Why two groups never train at once: a plan holds a majority; a step needs every member of its plan (the gradients of
all are added up); a node follows one plan at a time, and its next one has a higher epoch. Two majorities share a node,
so at most one of two plans can have all of its members.

Why the head and not the gateway or the controller is the tie-breaker of an even cluster: when the cable between two
halves is cut, both may still reach a third machine. What both sides can ask says yes to both, unless it keeps count of
whom it said yes to, and then it is one more machine that must be up. The head is on one side only, and needs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

MOST_FAILURES = 8
SETTLE_S = 2.0
DOUBT_S = 1.5


@dataclass(frozen=True, kw_only=True)
class Plan:
    epoch: int
    host: str
    members: tuple[str, ...]
    """In rank order, the host first."""
    port: int = 0


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The run is over, for all nodes."""

    done: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a node says of itself."""

    name: str
    epoch: int = 0
    """The highest that it ever took part in, also before it was restarted."""
    plan: Plan | None = None
    hears: tuple[str, ...] = ()
    condition: str = "fit"
    """fit, unfit (its own workers cannot run), resting (the same, and it will be tried again) or leaving."""
    cause: str = ""
    group: str = "none"
    """Its workers, in its plan: none, running, failed, done."""
    loading: bool = False
    """Its workers read or compute on their way to the first step."""
    step: int = 0
    begun: bool = False
    """Whether this launch has had a plan already."""
    verdict: Verdict | None = None


@dataclass(frozen=True, kw_only=True)
class View:
    """All that a decision rests on."""

    order: Sequence[str]
    me: Said
    heard: Mapping[str, Said] = field(default_factory=dict)
    """The peers that answer, by name."""
    age_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds since each of them answered last."""
    welcome: Collection[str] | None = None
    """Peers that have answered long enough to be taken in (None: all): one that comes and goes has to wait."""
    up_s: float = 1e9
    """Seconds since this agent started, or woke."""
    wait_all_s: float = 60.0
    """How long the very first plan waits for nodes that are missing."""
    failures: int = 0
    """Plans of this host in a row that failed without a new step."""
    failed_s: float = 0.0
    """Seconds since the first failure in the present plan was seen."""
    idle_s: float = 0.0
    limit_s: float = 1e9
    """Seconds without a sign of progress, and how many are too many."""


@dataclass(frozen=True)
class Keep:
    """Go on as it is."""


@dataclass(frozen=True)
class Rest:
    """Run no workers."""

    reason: str


@dataclass(frozen=True)
class Follow:
    plan: Plan


@dataclass(frozen=True)
class Propose:
    """Make a plan and be its host."""

    epoch: int
    members: tuple[str, ...]
    reason: str
    kind: str = "plan"
    """plan, lost, joined, failed or stalled: what the diary calls it."""
    nodes: tuple[str, ...] = ()
    """Those that the reason is about."""


@dataclass(frozen=True)
class End:
    verdict: Verdict


Action = Keep | Rest | Follow | Propose | End


def majority(names: Collection[str], order: Sequence[str]) -> bool:
    """More than half, or exactly half with the head among them."""
    count = len(set(names) & set(order))
    return 2 * count > len(order) or (2 * count == len(order) and order[0] in names)


def decide(view: View) -> Action:  # noqa: PLR0911 - one rule after the other, in the order in which they count
    me, everyone = view.me, _everyone(view)
    if verdict := me.verdict or next((said.verdict for said in everyone.values() if said.verdict), None):
        return End(verdict)
    if me.condition == "leaving":
        return Rest("this node was told to stop")
    unfit = {name: said.cause for name, said in everyone.items() if said.condition in ("unfit", "resting")}
    if not majority([name for name in view.order if name not in unfit], view.order):
        return End(Verdict(done=False, reason="; ".join(f"{name}: {cause}" for name, cause in unfit.items())))
    if me.name in unfit:
        return Rest(f"left out{' for now' if me.condition == 'resting' else ''}: {me.cause}")
    fit = {name: said for name, said in everyone.items() if said.condition == "fit"}
    if not majority(fit, view.order):
        return Rest(why_too_few(fit, view.order))
    newest = _newest_plan(fit, view.order)
    if newest is None:
        return _begin(view, fit)
    if newest.host == me.name and newest == me.plan:
        return _host(view, fit, newest)
    return _follow(view, fit, newest)


def why_too_few(fit: Collection[str], order: Sequence[str]) -> str:
    missing = ", ".join(name for name in order if name not in fit)
    if 2 * len(fit) == len(order):
        return f"no answer from {missing}; of two halves the one with {order[0]} goes on, this one waits"
    return f"no answer from {missing}; {len(fit)} of {len(order)} are no majority, waiting"


def backoff_s(failures: int) -> float:
    """The first failures are retried at once, later ones after 1, 2, 4 … seconds."""
    return 0.0 if failures < 3 else min(30.0, 2.0 ** (failures - 3))


def choose_members(fit: Mapping[str, Said], order: Iterable[str], host: str) -> tuple[str, ...]:
    """The host and, in this order, all who hear one another: a group cannot train over a link that is cut."""
    chosen = [host]
    for name in order:
        if name in fit and name not in chosen and all(_hear(fit[name], fit[other]) for other in chosen):
            chosen.append(name)
    return tuple(chosen)


def _everyone(view: View) -> dict[str, Said]:
    known = {**view.heard, view.me.name: view.me}
    return {name: known[name] for name in view.order if name in known}


def _hear(one: Said, other: Said) -> bool:
    return other.name in one.hears and one.name in other.hears


def _newest_plan(fit: Mapping[str, Said], order: Sequence[str]) -> Plan | None:
    """Of all that is followed, also where its host cannot be heard from here; of equal epochs the earlier host's."""
    plans = [said.plan for said in fit.values() if said.plan]
    return max(plans, key=lambda plan: (plan.epoch, -list(order).index(plan.host)), default=None)


def _next_epoch(view: View) -> int:
    return max(said.epoch for said in _everyone(view).values()) + 1


def _begin(view: View, fit: Mapping[str, Said]) -> Action:
    """Nobody follows anything: the first of those who can makes a plan."""
    first = next(iter(fit))
    missing = [name for name in view.order if name not in fit]
    if first != view.me.name:
        return Rest(f"waiting for a plan from {first}")
    if missing and not any(said.begun for said in fit.values()) and view.up_s < view.wait_all_s:
        return Rest(f"waiting up to {view.wait_all_s:.0f} s for {', '.join(missing)}")
    members = choose_members(fit, view.order, first)
    if (missing or len(members) < len(fit)) and view.up_s < SETTLE_S:
        return Rest("looking for the others")
    if not majority(members, view.order):
        return Rest(f"{first} and {', '.join(n for n in fit if n not in members)} do not hear each other yet")
    return Propose(_next_epoch(view), members, "first plan" if not view.me.begun else "a new host", "plan", members)


def _follow(view: View, fit: Mapping[str, Said], newest: Plan) -> Action:  # noqa: PLR0911
    me = view.me
    if newest.host not in fit:
        return Rest(f"others follow {newest.host}, which does not answer here")
    if fit[newest.host].plan != newest:
        return Rest(f"{newest.host} is making a new plan")
    if me.name not in newest.members:
        return Rest(f"waiting for {newest.host} to take this node in")
    if not majority(newest.members, view.order):
        return Rest(f"the plan of {newest.host} has no majority")
    if newest == me.plan:
        return Keep()
    if newest.epoch > me.epoch:
        return Follow(newest)
    return Rest(f"waiting for {newest.host} to make a newer plan")


def _host(view: View, fit: Mapping[str, Said], plan: Plan) -> Action:  # noqa: PLR0911
    me = view.me
    # Who is in stays in: a newcomer that one of them does not hear yet waits, and pushes nobody out.
    can = choose_members(fit, dict.fromkeys([*plan.members, *view.order]), me.name)
    chosen = tuple(n for n in can if n in plan.members or view.welcome is None or n in view.welcome)
    if not majority(chosen, view.order):
        return Rest(why_too_few(chosen, view.order))

    def again(reason: str, kind: str, nodes: Collection[str]) -> Propose:
        return Propose(_next_epoch(view), chosen, reason, kind, tuple(nodes))

    others = [name for name in plan.members if name != me.name]
    lost = [name for name in plan.members if name not in chosen]
    if lost and all(name in fit for name in lost) and any(view.age_s.get(name, 0) > DOUBT_S for name in others):
        return Keep()  # one of two who do not hear each other is falling silent here too: soon it is clear which
    if lost:
        return again(f"lost {', '.join(why_lost(view, name) for name in lost)}", "lost", lost)
    if anew := [name for name in others if fit[name].epoch >= plan.epoch and fit[name].plan != plan]:
        return again(f"{', '.join(anew)} began anew", "joined", anew)
    failed = [name for name in plan.members if fit[name].plan == plan and fit[name].group == "failed"]
    if failed:
        causes = "; ".join(f"{name}: {fit[name].cause or 'failed'}" for name in failed)
        if view.failures + 1 >= MOST_FAILURES:
            return End(Verdict(done=False, reason=f"{MOST_FAILURES} failures in a row without a step ({causes})"))
        # One that died takes the others' workers with it and is silent only a little later: first hear from everyone.
        answered = all(view.age_s.get(name, 1e9) < view.failed_s for name in others)
        if answered and view.failed_s >= backoff_s(view.failures):
            return again(causes, "failed", failed)
        return Keep()
    if new := [name for name in chosen if name not in plan.members]:
        return again(f"{', '.join(new)} can take part", "joined", new)
    if me.group == "running" and view.idle_s > view.limit_s:
        if view.failures + 1 >= MOST_FAILURES:
            return End(Verdict(done=False, reason=f"{MOST_FAILURES} times in a row no step for {view.limit_s:.0f} s"))
        hints = ", ".join(f"{name} ({fit[name].cause})" for name in plan.members if fit[name].cause)
        return again(
            f"no step for {view.idle_s:.0f} s (limit {view.limit_s:.0f} s){': ' + hints if hints else ''}",
            "stalled",
            plan.members,
        )
    return Keep()


def why_lost(view: View, name: str) -> str:
    said = view.heard.get(name)
    if said is None:
        return f"{name} (silent)"
    if said.condition == "fit":
        return f"{name} (it and another member do not hear each other)"
    return f"{name} ({said.condition}{': ' + said.cause if said.cause else ''})"
