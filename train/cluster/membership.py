"""Who trains: the agents' decisions as one pure function. `decide` takes what a node knows and returns what it is to
do; no clock, socket, file or process is touched here. tests/train/test_membership.py tries it on all orders of events.

A generation {number, host, members} is published by its host alone, and followed only while that host publishes it.

Why two groups never train at once: a generation has a majority; a step needs every member of its generation (it
combines the gradients of all); a node follows one generation at a time, and its next one has a higher number. Two
majorities share a node, so at most one of two generations can have all of its members.

Why the head and not the gateway or the controller is the tie-breaker of an even cluster: when the cable between two
halves is cut, both may still reach a third machine. What both sides can ask says yes to both, unless it counts whom it
said yes to, and then it is one more machine that must be up. The head is on one side only, and needs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from train import pause
from train.cluster.node_status import Generation, NodeStatus, RunEnd
from train.cluster.notice_ledger import Lost
from train.cluster.timing import TIMING
from train.plan.placement.pipeline_split import Room, why_too_small

MOST_FAILURES = 8


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """All that a decision rests on."""

    order: Sequence[str]
    me: NodeStatus
    peers: Mapping[str, NodeStatus] = field(default_factory=dict)
    """The status of each peer that answers, by name."""
    age_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds since each peer answered last."""
    no_agent_s: Mapping[str, float] = field(default_factory=dict)
    """Peers whose machines answer, and have had no agent for so many seconds."""
    welcome: Collection[str] | None = None
    """Peers that have answered long enough to join (None: all): one that comes and goes has to wait."""
    room: Room | None = None
    """How much each node can hold of a model that is cut."""
    wall: float = 0.0
    """The time of the day here."""
    up_s: float = 1e9
    """Seconds since this agent started, or woke."""
    wait_all_s: float = 60.0
    """How long the very first generation waits for missing nodes."""
    failures: int = 0
    """Generations of this host in a row that failed without a new step."""
    failed_s: float = 0.0
    """Seconds since the first failure in the present generation was seen."""
    idle_s: float = 0.0
    limit_s: float = 1e9
    """Seconds without a sign of progress, and how many are too many."""


@dataclass(frozen=True)
class Keep:
    """Change nothing."""


@dataclass(frozen=True)
class Idle:
    """Run no workers."""

    reason: str
    too_few: bool = False
    """Whether others do not answer, and without them there is no majority."""


@dataclass(frozen=True)
class Prepare(Idle):
    """Load beside the generation of the others, which will take this node in."""


@dataclass(frozen=True)
class Follow:
    generation: Generation


@dataclass(frozen=True)
class Propose:
    """Publish a generation and be its host."""

    number: int
    members: tuple[str, ...]
    reason: str
    kind: str = "plan"
    """Its event in members.jsonl: plan, lost, joined, failed or stalled."""
    nodes: tuple[str, ...] = ()
    """The nodes that the reason is about."""
    lost: Mapping[str, Lost] = field(default_factory=dict)


@dataclass(frozen=True)
class End:
    verdict: RunEnd


@dataclass(frozen=True)
class Leave:
    """End this agent alone, without knowing how the run ended."""

    reason: str


Action = Keep | Idle | Follow | Propose | End | Leave


def majority(names: Collection[str], order: Sequence[str]) -> bool:
    """Whether these are more than half, or exactly half with the head among them."""
    count = len(set(names) & set(order))
    return 2 * count > len(order) or (2 * count == len(order) and order[0] in names)


def decide(view: NodeView) -> Action:  # noqa: PLR0911 - one rule after the other, in the order in which they count
    me, everyone = view.me, _everyone(view)
    if verdict := me.verdict or next((node.verdict for node in everyone.values() if node.verdict), None):
        return End(verdict)
    if me.condition == "leaving":
        return Idle("this node is stopping")
    unfit = {name: node.cause for name, node in everyone.items() if node.condition in ("unfit", "resting")}
    if not majority([name for name in view.order if name not in unfit], view.order):
        return End(RunEnd(done=False, reason="; ".join(f"{name}: {cause}" for name, cause in unfit.items())))
    if me.condition == "away":
        return Idle(_why_away(view, everyone) or f"{me.name} steps aside: {me.cause}")
    if me.name in unfit:
        return Idle(f"skipped{' for now' if me.condition == 'resting' else ''}: {me.cause}")
    fit = {name: node for name, node in everyone.items() if node.condition == "fit"}
    if not majority(fit, view.order):
        if is_over_elsewhere(view):
            return Leave("the run ended or was stopped while this machine was away")
        why = _why_away(view, everyone)
        return Idle(why) if why else too_few(fit, view.order)
    if why := too_little(view, fit):
        return Idle(why)
    newest = _newest_generation(fit, view.order)
    if newest is None:
        return _begin(view, fit)
    if newest.host == me.name and newest == me.generation:
        facts = host_facts(view, fit, newest)
        return next(rule for rule in HOST_RULES if rule.applies(facts)).action(facts)
    return _follow(view, fit, newest)


def too_few(fit: Collection[str], order: Sequence[str]) -> Idle:
    missing = ", ".join(name for name in order if name not in fit)
    what = f"{len(fit)} of {len(order)} are no majority, waiting"
    if 2 * len(fit) == len(order):
        what = f"of two halves the one with {order[0]} continues, this one waits"
    return Idle(f"no answer from {missing}; {what}", too_few=True)


def is_over_elsewhere(view: NodeView) -> bool:
    """Whether the run has ended: agents of one that continues are back within seconds, whatever happens to them."""
    gone_s = view.no_agent_s.values()
    return view.me.begun and not view.peers and min(gone_s, default=0) > TIMING.over_s


def too_little(view: NodeView, names: Collection[str]) -> str:
    """Why those that are left cannot hold the model together: how much is missing, and which node would do."""
    if view.room is None:
        return ""
    return why_too_small(list(names), [name for name in view.order if name not in names], view.room)


def _why_away(view: NodeView, everyone: Mapping[str, NodeStatus]) -> str:
    """Why too few are left, where others step aside: who, and when enough will be back."""
    away = {name: node for name, node in everyone.items() if node.condition == "away"}
    fit = [name for name, node in everyone.items() if node.condition == "fit"]
    if not away or not majority([*fit, *away], view.order):
        return ""
    causes = "; ".join(f"{name} steps aside: {node.cause}" for name, node in away.items())
    if majority(fit, view.order):
        return causes
    for name in sorted(away, key=lambda name: away[name].until or float("inf")):
        fit.append(name)
        if majority(fit, view.order):
            until = away[name].until
            return f"waiting for a majority{', ' + pause.words(until, view.wall) if until else ''} ({causes})"
    return causes


def backoff_s(failures: int) -> float:
    """Seconds until the next try: the first failures are retried at once, later ones after 1, 2, 4 … seconds."""
    return 0.0 if failures < 3 else min(TIMING.backoff_most_s, TIMING.backoff_s * 2.0 ** (failures - 3))


def choose_members(fit: Mapping[str, NodeStatus], order: Iterable[str], host: str) -> tuple[str, ...]:
    """The host and, in this order, all who reach one another: a group cannot train over a link that is cut."""
    chosen = [host]
    for name in order:
        if name in fit and name not in chosen and all(_linked(fit[name], fit[other]) for other in chosen):
            chosen.append(name)
    return tuple(chosen)


def _everyone(view: NodeView) -> dict[str, NodeStatus]:
    statuses = {**view.peers, view.me.name: view.me}
    return {name: statuses[name] for name in view.order if name in statuses}


def ready_ones(names: Iterable[str], fit: Mapping[str, NodeStatus], order: Sequence[str]) -> tuple[str, ...]:
    """The nodes whose workers have loaded, where they are a majority: none waits for one that still loads. Else all."""
    loaded_or_not = tuple(names)
    ready = tuple(name for name in loaded_or_not if fit[name].ready)
    return ready if majority(ready, order) else loaded_or_not


def _linked(a: NodeStatus, b: NodeStatus) -> bool:
    return b.name in a.reachable and a.name in b.reachable


def _newest_generation(fit: Mapping[str, NodeStatus], order: Sequence[str]) -> Generation | None:
    """The newest of all that are followed, also one whose host is silent here; of equal numbers the earlier host's."""
    followed = [node.generation for node in fit.values() if node.generation]
    return max(followed, key=lambda each: (each.number, -list(order).index(each.host)), default=None)


def _next_number(view: NodeView) -> int:
    return max(node.number for node in _everyone(view).values()) + 1


def _begin(view: NodeView, fit: Mapping[str, NodeStatus]) -> Action:
    """Nobody follows anything: the first of those who can publishes a generation."""
    if any(node.begun for node in fit.values()):
        fit = {name: fit[name] for name in ready_ones(fit, fit, view.order)}
    first = next(iter(fit))
    away = [node.name for node in view.peers.values() if node.condition == "away"]
    missing = [name for name in view.order if name not in fit and name not in away]
    if first != view.me.name:
        return Idle(f"waiting for {first} to begin")
    if missing and not any(node.begun for node in fit.values()) and view.up_s < view.wait_all_s:
        return Idle(f"waiting up to {view.wait_all_s:.0f} s for {', '.join(missing)}")
    members = choose_members(fit, view.order, first)
    if (missing or len(members) < len(fit)) and view.up_s < TIMING.settle_s:
        return Idle("looking for the others")
    if not majority(members, view.order) or too_little(view, members):
        return Idle(f"{first} and {', '.join(n for n in fit if n not in members)} do not reach each other yet")
    return Propose(
        _next_number(view), members, "all are ready" if not view.me.begun else "another one leads", nodes=members
    )


def _follow(view: NodeView, fit: Mapping[str, NodeStatus], newest: Generation) -> Action:  # noqa: PLR0911
    me = view.me
    if newest.host not in fit:
        return Idle(f"others follow {newest.host}, which does not answer here")
    if fit[newest.host].generation != newest:
        return Idle(f"{newest.host} is starting again")
    if me.name not in newest.members:
        what = "waiting for {} to add this node" if me.ready else "getting ready, while {} trains on"
        return Prepare(what.format(newest.host))
    if not majority(newest.members, view.order):
        return Idle(f"those with {newest.host} are no majority")
    if newest == me.generation:
        return Keep()
    if newest.number > me.number:
        return Follow(newest)
    return Idle(f"waiting for {newest.host} to start again")


# -- the host --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """What the host of a generation decides on."""

    view: NodeView
    ours: Generation
    chosen: tuple[str, ...]
    """The nodes that can be members of the next generation."""
    lost: Mapping[str, Lost]
    """The members that cannot be one any more, and why."""
    loss_is_unclear: bool
    """One of two members that do not reach each other is new, or is falling silent here too: soon it is clear which."""
    restarted: Sequence[str]
    failed: Mapping[str, str]
    may_retry: bool
    """A node that dies takes the others' workers with it and is silent only a little later: first all must answer."""
    is_last_try: bool
    joining: Sequence[str]
    stalled: str


def host_facts(view: NodeView, fit: Mapping[str, NodeStatus], ours: Generation) -> HostFacts:
    # Members stay: a newcomer that one of them does not reach yet waits, and pushes nobody out.
    can = choose_members(fit, dict.fromkeys([*ours.members, *view.order]), view.me.name)
    welcome = [n for n in can if n in ours.members or view.welcome is None or n in view.welcome]
    members = {name: fit[name] for name in ours.members if name in fit}
    failed = [node for node in members.values() if node.generation == ours and node.group == "failed"]
    restarted = [n for n, node in members.items() if node.number >= ours.number and node.generation != ours]
    # A member whose workers load again is a newcomer: the others train on, where they can.
    again = {node.name: node.cause for node in failed} | dict.fromkeys(restarted, "")
    stay = [name for name in ours.members if name not in again]
    loading = {*welcome} - {*stay, *ready_ones(welcome, fit, view.order)}
    chosen = tuple(name for name in welcome if name not in loading)
    others = [name for name in ours.members if name != view.me.name]
    lost = {
        name: loads_again(again[name]) if name in loading else how_lost(view.peers.get(name))
        for name in ours.members
        if name not in chosen
    }
    apart = [name for name in lost if name not in loading]
    unsure = any(view.age_s.get(name, 0) > TIMING.doubt_s for name in others)
    unsure = unsure or any(node.is_new for node in members.values())
    answered = all(view.age_s.get(name, 1e9) < view.failed_s for name in others)
    return HostFacts(
        view=view,
        ours=ours,
        chosen=chosen,
        lost=lost,
        loss_is_unclear=bool(apart) and unsure and all(name in fit for name in apart),
        restarted=restarted,
        failed={node.name: f"{node.name}: {node.cause or 'failed'}" for node in failed},
        may_retry=answered and view.failed_s >= backoff_s(view.failures),
        is_last_try=view.failures + 1 >= MOST_FAILURES,
        joining=[name for name in chosen if name not in ours.members],
        stalled=why_stalled(view, members) if view.me.group == "running" and view.idle_s > view.limit_s else "",
    )


def how_lost(node: NodeStatus | None) -> Lost:
    if node is None:
        return Lost("silent", "silent")
    if node.condition == "fit":
        return Lost("apart", "it and another member do not reach each other")
    if node.condition == "away":
        return Lost("away", node.cause)
    return Lost(node.condition, f"{node.condition}{': ' + node.cause if node.cause else ''}")


def loads_again(cause: str) -> Lost:
    return Lost("loading", f"its workers failed: {cause}" if cause else "restarted")


def stepped_aside(nodes: Mapping[str, NodeStatus | None]) -> dict[str, Lost]:
    return {name: how_lost(node) for name, node in nodes.items() if node and node.condition == "away"}


def lost_words(lost: Mapping[str, Lost]) -> str:
    return f"lost {', '.join(f'{name} ({how})' for name, how in lost.items())}"


def why_stalled(view: NodeView, members: Mapping[str, NodeStatus]) -> str:
    hints = ", ".join(f"{name} ({node.cause})" for name, node in members.items() if node.cause)
    return f"no step for {view.idle_s:.0f} s (limit {view.limit_s:.0f} s){': ' + hints if hints else ''}"


def _next(facts: HostFacts, kind: str, nodes: Iterable[str], reason: str) -> Propose:
    return Propose(_next_number(facts.view), facts.chosen, reason, kind, tuple(nodes))


def _give_up(reason: str) -> End:
    return End(RunEnd(done=False, reason=f"{MOST_FAILURES} failures in a row without a step ({reason})"))


@dataclass(frozen=True)
class Rule:
    name: str
    applies: Callable[[HostFacts], object]
    action: Callable[[HostFacts], Action]


HOST_RULES = (
    Rule("loads again itself", lambda h: h.view.me.name not in h.chosen,
         lambda _: Prepare("its workers load again, and another one leads")),
    Rule("no majority", lambda h: not majority(h.chosen, h.view.order), lambda h: too_few(h.chosen, h.view.order)),
    Rule("too little memory", lambda h: too_little(h.view, h.chosen) and not h.loss_is_unclear,
         lambda h: Idle(too_little(h.view, h.chosen))),
    Rule("unclear loss", lambda h: h.loss_is_unclear, lambda _: Keep()),
    Rule("lost", lambda h: h.lost, lambda h: replace(_next(h, "lost", h.lost, lost_words(h.lost)), lost=h.lost)),
    Rule("restarted", lambda h: h.restarted,
         lambda h: _next(h, "joined", h.restarted, f"{', '.join(h.restarted)} restarted")),
    Rule("failed too often", lambda h: h.failed and h.is_last_try, lambda h: _give_up("; ".join(h.failed.values()))),
    Rule("failed just now", lambda h: h.failed and not h.may_retry, lambda _: Keep()),
    Rule("failed", lambda h: h.failed, lambda h: _next(h, "failed", h.failed, "; ".join(h.failed.values()))),
    Rule("joining", lambda h: h.joining, lambda h: _next(h, "joined", h.joining, f"{', '.join(h.joining)} can join")),
    Rule("stalled too often", lambda h: h.stalled and h.is_last_try, lambda h: _give_up(h.stalled)),
    Rule("stalled", lambda h: h.stalled, lambda h: _next(h, "stalled", h.ours.members, h.stalled)),
    Rule("all is well", lambda _: True, lambda _: Keep()),
)  # fmt: skip
"""The rules by which a host decides: the first that applies counts."""
