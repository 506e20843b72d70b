"""The agents' decisions, each alone. Whole clusters over all orders of events: tests/sim."""

import time
from dataclasses import replace

import pytest

from train.cluster.membership import (
    HOST_RULES,
    MOST_FAILURES,
    End,
    HostFacts,
    Idle,
    Keep,
    Leave,
    NodeView,
    Prepare,
    Propose,
    backoff_s,
    decide,
    host_facts,
    majority,
)
from train.cluster.node_status import Generation, NodeStatus, RunEnd
from train.cluster.notice_ledger import Lost
from train.plan.placement.pipeline_split import Room

PAIR, TRIO, FOUR = ("a", "b"), ("a", "b", "c"), ("a", "b", "c", "d")


def status(name: str, order=TRIO, **changes) -> NodeStatus:
    return replace(NodeStatus(name=name, reachable=tuple(n for n in order if n != name)), **changes)


def of(ours: Generation, **more) -> dict:
    return {"generation": ours, "number": ours.number, **more}


def seen_by(name: str, peers: list[NodeStatus], order=TRIO, me: dict | None = None, **facts) -> NodeView:
    own = status(name, order, reachable=tuple(s.name for s in peers), **(me or {}))
    facts = {"age_s": {s.name: 0.1 for s in peers}} | facts
    return NodeView(order=order, me=own, peers={s.name: s for s in peers}, **facts)


OURS = Generation(number=2, host="a", members=TRIO)
B, C = (status(name, **of(OURS)) for name in ("b", "c"))


def proposed(view: NodeView) -> tuple[str, ...]:
    """The members of the generation that it publishes."""
    action = decide(view)
    assert isinstance(action, Propose), action
    return action.members


def test_majorities():
    assert majority(["b", "c"], TRIO) and not majority(["a"], TRIO)
    assert majority(["a"], PAIR) and not majority(["b"], PAIR)
    assert majority(["a", "d"], FOUR) and not majority(["b", "c"], FOUR) and majority(["b", "c", "d"], FOUR)
    assert majority(["a"], ("a",))


def test_who_finds_no_agent_for_long_leaves():
    facts = {"me": {"begun": True}, "no_agent_s": {"b": 601.0, "c": 605.0}}
    assert isinstance(decide(seen_by("a", [], **facts)), Leave)
    assert isinstance(decide(seen_by("a", [], **facts | {"no_agent_s": {"b": 601.0}})), Leave), "c is off"
    assert isinstance(decide(seen_by("a", [], **facts | {"no_agent_s": {"b": 601.0, "c": 5.0}})), Idle)
    assert isinstance(decide(seen_by("a", [], **facts | {"no_agent_s": {}})), Idle), "both are off"
    assert isinstance(decide(seen_by("a", [], **facts | {"me": {}})), Idle), "the others are still to be started"
    assert not isinstance(decide(seen_by("a", [status("b")], **facts | {"no_agent_s": {"c": 601.0}})), Leave)


def test_the_first_generation_waits_for_all_but_not_for_ever():
    assert decide(seen_by("a", [status("b")], up_s=10)) == Idle("waiting up to 60 s for c")
    assert proposed(seen_by("a", [status("b")], up_s=61)) == ("a", "b")
    # A launch that has trained already does not wait: its nodes are known to be missing.
    assert proposed(seen_by("a", [status("b", begun=True)], up_s=10)) == ("a", "b")


def test_who_steps_aside_is_not_waited_for_and_is_named():
    paused = {"condition": "away", "cause": "paused until 18:00"}
    assert proposed(seen_by("a", [status("b"), status("c", **paused)], up_s=3)) == ("a", "b")
    mine = decide(seen_by("c", [status("a"), status("b")], me=paused))
    assert mine == Idle("c steps aside: paused until 18:00")
    action = decide(seen_by("a", [B, replace(C, **paused)], me=of(OURS)))
    assert isinstance(action, Propose) and (action.members, action.kind) == (("a", "b"), "lost")
    assert action.reason == "lost c (steps aside: paused until 18:00)"


def test_with_fewer_than_a_majority_it_waits_and_says_until_when():
    at = time.mktime((2026, 11, 23, 20, 0, 0, 0, 0, -1))
    away = [
        status(name, condition="away", cause=f"outside its hours, until {hour}:00", until=at + 3600 * (hour - 20))
        for name, hour in (("b", 23), ("c", 22))
    ]
    action = decide(seen_by("a", away, wall=at))
    words = "b steps aside: outside its hours, until 23:00; c steps aside: outside its hours, until 22:00"
    assert action == Idle(f"waiting for a majority, until 22:00 ({words})")
    unknown = [status(name, condition="away", cause="on battery") for name in ("b", "c")]
    action = decide(seen_by("a", unknown, wall=at))
    assert action == Idle("waiting for a majority (b steps aside: on battery; c steps aside: on battery)")
    silent = decide(seen_by("a", [status("b", condition="away", cause="paused")], (*TRIO, "d", "e"), wall=at))
    assert isinstance(silent, Idle) and silent.too_few, "unpausing b would not help"


def test_of_two_the_head_continues_and_the_other_waits_and_says_so():
    assert proposed(seen_by("a", [], PAIR, me={"begun": True})) == ("a",)
    other = decide(seen_by("b", [], PAIR))
    assert other == Idle("no answer from a; of two halves the one with a continues, this one waits", too_few=True)


def test_a_running_host_beats_the_order():
    ours = Generation(number=4, host="b", members=("b", "c"))
    returned = decide(seen_by("a", [status("b", **of(ours)), status("c", **of(ours))], me={"number": 3}))
    assert returned == Prepare("waiting for b to add this node")
    host = decide(seen_by("b", [status("a", number=3), status("c", **of(ours))], me=of(ours)))
    assert isinstance(host, Propose) and (host.kind, host.number, host.members) == ("joined", 5, ("b", "c", "a"))


def test_nobody_waits_for_a_newcomer_that_loads():
    ours = Generation(number=4, host="b", members=("b", "c"))
    loads = decide(seen_by("a", [status("b", **of(ours)), status("c", **of(ours))], me={"number": 3, "ready": False}))
    assert loads == Prepare("getting ready, while b trains on")
    host = seen_by("b", [status("a", number=3, ready=False), status("c", **of(ours))], me=of(ours))
    assert decide(host) == Keep()
    alone = seen_by("b", [status("a", number=3, ready=False)], me=of(ours))
    assert proposed(alone) == ("b", "a"), "without it they are no majority"


def test_who_has_loaded_begins_again_without_waiting_for_who_has_not():
    begun = {"number": 4, "begun": True}
    peers = [status("b", **begun), status("c", **begun)]
    assert decide(seen_by("a", peers, me=begun | {"ready": False})) == Idle("waiting for b to begin")
    assert proposed(seen_by("b", [status("a", **begun, ready=False), peers[1]], me=begun)) == ("b", "c")
    both_load = [status(name, **begun, ready=False) for name in ("b", "c")]
    assert proposed(seen_by("a", both_load, me=begun)) == TRIO


def test_a_generation_older_than_what_this_node_has_seen_is_not_followed():
    ours = Generation(number=4, host="b", members=TRIO)
    assert isinstance(decide(seen_by("a", [status("b", **of(ours))], me={"number": 6})), Idle)


def test_a_node_that_cannot_run_is_skipped_until_too_many_cannot():
    broken = replace(B, condition="unfit", cause="no GPU")
    action = decide(seen_by("a", [broken, C], me=of(OURS)))
    assert isinstance(action, Propose) and action.members == ("a", "c") and "b (unfit: no GPU)" in action.reason
    action = decide(seen_by("a", [broken, status("c", condition="unfit", cause="no driver")]))
    assert action == End(RunEnd(done=False, reason="b: no GPU; c: no driver"))


def test_one_verdict_is_everyones():
    over = RunEnd(done=True, reason="all 9 steps are trained")
    assert decide(seen_by("c", [status("b", verdict=over)])) == End(over)


# -- the host's rules ---------------------------------------------------------------------------------------------

PART, TWO = (replace(OURS, members=("a", other)) for other in ("b", "c"))
BROKEN = replace(C, group="failed", cause="boom")


def hosts(
    *peers: NodeStatus, ours: Generation = OURS, group: str = "running", ready: bool = True, **facts
) -> HostFacts:
    view = seen_by("a", list(peers), me=of(ours, group=group) | {"ready": ready}, **facts)
    return host_facts(view, {node.name: node for node in (view.me, *peers)}, ours)


CALM = hosts(B, C)
DEAF = replace(C, reachable=("a",))
APART = {"c": Lost("apart", "it and another member do not reach each other")}
NO_STEP = "no step for 21 s (limit 20 s)"
OF_PART = status("b", **of(PART))
FAILING = [replace(node, group="failed", cause="boom") for node in (B, C)]
CASES = [  # of each rule: when, and what the host does
    (
        *("loads again itself", "alone"),
        hosts(B, C, group="failed", ready=False),
        Prepare("its workers load again, and another one leads"),
    ),
    ("no majority", "alone", hosts(), Idle("no answer from b, c; 1 of 3 are no majority, waiting", too_few=True)),
    (
        *("too little memory", "without c"),
        hosts(B, DEAF, room=Room(3, 10**9, dict.fromkeys(TRIO, 1))),
        Idle("a and b hold 2 of 3 layers: 1.0 GB are missing, waiting for c"),
    ),
    ("unclear loss", "b falls silent, and c has noticed first", hosts(B, DEAF, age_s={"b": 2.0, "c": 0.1}), Keep()),
    ("unclear loss", "c is new", hosts(B, status("c", number=2, reachable=(), is_new=True)), Keep()),
    ("lost", "c", hosts(B), Propose(3, ("a", "b"), "lost c (silent)", "lost", ("c",), {"c": Lost("silent", "silent")})),
    (
        *("lost", "b, and not c, which has noticed first"),
        hosts(DEAF),
        Propose(3, ("a", "c"), "lost b (silent)", "lost", ("b",), {"b": Lost("silent", "silent")}),
    ),
    (
        *("lost", "both answer, and the cable between them is cut"),
        hosts(B, DEAF),
        Propose(3, ("a", "b"), f"lost c ({APART['c'].why})", "lost", ("c",), APART),
    ),
    ("restarted", "c", hosts(B, replace(C, generation=None)), Propose(3, TRIO, "c restarted", "joined", ("c",))),
    (
        *("restarted", "c is new and reaches all"),
        hosts(B, status("c", number=2, is_new=True)),
        Propose(3, TRIO, "c restarted", "joined", ("c",)),
    ),
    (
        *("failed too often", "c"),
        hosts(B, BROKEN, failures=MOST_FAILURES - 1),
        End(RunEnd(done=False, reason="8 failures in a row without a step (c: boom)")),
    ),
    ("failed just now", "c", hosts(B, BROKEN, failed_s=0.05), Keep()),
    ("failed just now", "b has not answered since", hosts(B, BROKEN, failed_s=0.5, age_s={"b": 2.0, "c": 0.1}), Keep()),
    ("failed just now", "the fifth time", hosts(*FAILING, failures=4, failed_s=1.5), Keep()),
    ("failed", "c", hosts(B, BROKEN, failed_s=1.0), Propose(3, TRIO, "c: boom", "failed", ("c",))),
    (
        *("failed", "the fifth time, two seconds ago"),
        hosts(*FAILING, failures=4, failed_s=2.5),
        Propose(3, TRIO, "b: boom; c: boom", "failed", ("b", "c")),
    ),
    ("joining", "c", hosts(OF_PART, status("c"), ours=PART), Propose(3, TRIO, "c can join", "joined", ("c",))),
    (
        *("joining", "c has waited"),
        hosts(OF_PART, status("c"), ours=PART, welcome=["b", "c"]),
        Propose(3, TRIO, "c can join", "joined", ("c",)),
    ),
    (
        *("stalled too often", "all"),
        hosts(B, C, idle_s=21, limit_s=20, failures=MOST_FAILURES - 1),
        End(RunEnd(done=False, reason=f"8 failures in a row without a step ({NO_STEP})")),
    ),
    (
        *("stalled", "b knows why"),
        hosts(replace(B, cause="a worker is stopped"), C, idle_s=21, limit_s=20),
        Propose(3, TRIO, f"{NO_STEP}: b (a worker is stopped)", "stalled", TRIO),
    ),
    ("all is well", "all", CALM, Keep()),
    ("all is well", "a step takes long", hosts(B, C, idle_s=19, limit_s=20), Keep()),
    ("all is well", "c comes and goes", hosts(OF_PART, status("c"), ours=PART, welcome=["b"]), Keep()),
    (
        *("all is well", "c is a member, and does not reach the newcomer b"),
        hosts(status("b"), replace(DEAF, generation=TWO), ours=TWO),
        Keep(),
    ),
]


def lost_by(facts: HostFacts) -> dict[str, Lost]:
    action = next(rule for rule in HOST_RULES if rule.applies(facts)).action(facts)
    return dict(action.lost) if isinstance(action, Propose) else {}


def test_nobody_waits_for_workers_that_load_again_where_the_others_can_go_on():
    """Before its failure is confirmed by all, as it is no sign of a machine that dies."""
    loads = replace(BROKEN, ready=False)
    assert lost_by(hosts(B, loads, failed_s=0.05)) == {"c": Lost("loading", "its workers failed: boom")}
    again = status("c", number=2, ready=False)
    assert lost_by(hosts(B, again)) == {"c": Lost("loading", "restarted")}
    assert lost_by(hosts(replace(B, group="failed"), loads)) == {"c": Lost("loading", "its workers failed: boom")}
    assert lost_by(hosts(replace(B, group="failed", ready=False), loads, failed_s=1.0)) == {}, "one is no majority"
    starts = replace(C, ready=False)
    assert lost_by(hosts(B, starts)) == {}, "a member that loads, and of which nothing failed, stays"


@pytest.mark.parametrize(
    ("name", "facts", "wanted"), [pytest.param(name, *what, id=f"{name}: {when}") for name, when, *what in CASES]
)
def test_a_rule_of_the_host(name, facts, wanted):
    """It is the first that applies to its case, and what it does."""
    rule = next(rule for rule in HOST_RULES if rule.applies(facts))
    assert (rule.name, rule.action(facts)) == (name, wanted)


def test_while_all_is_well_only_the_last_rule_of_the_host_applies():
    assert [rule.name for rule in HOST_RULES if rule.applies(CALM)] == [HOST_RULES[-1].name]
    assert {rule.name for rule in HOST_RULES} == {name for name, *_ in CASES}


def test_failures_without_a_step_are_retried_later_and_later():
    assert [backoff_s(failures) for failures in range(6)] == [0, 0, 0, 1, 2, 4]
