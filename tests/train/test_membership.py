"""The agents' decisions over all orders of events: a small world of nodes whose words arrive late, whose cables are cut
and who are killed, put to sleep and brought back at any moment. A plan trains only with all of its members."""

from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from train.cluster.membership import (
    MOST_FAILURES,
    End,
    Follow,
    Keep,
    Plan,
    Propose,
    Rest,
    Said,
    Verdict,
    View,
    backoff_s,
    choose_members,
    decide,
    majority,
)

ROUND_S = 0.5
PATIENCE_S = 3.0


@dataclass
class Node:
    name: str
    said: Said
    known: dict[str, tuple[float, Said]] = field(default_factory=dict)
    up_since: float = 0.0
    on: bool = True
    awake: bool = True
    failed_at: float | None = None
    failures: int = 0


class World:
    """Nodes, cables, a clock. What is true of every moment is asserted after every round of every node."""

    def __init__(self, size: int) -> None:
        self.order = tuple(f"n{i}" for i in range(size))
        self.nodes = {name: Node(name, Said(name=name)) for name in self.order}
        self.cut: set[frozenset[str]] = set()
        self.time = 0.0
        self.trained: dict[int, Plan] = {}

    def act(self, name: str) -> None:
        """One round of one agent: hear whom it can, decide, do it."""
        node = self.nodes[name]
        if not (node.on and node.awake):
            return
        for other in self.nodes.values():
            if other is not node and other.on and other.awake and frozenset((name, other.name)) not in self.cut:
                node.known[other.name] = (self.time, other.said)
        view = self.view(node)
        before = node.said.epoch
        self.obey(node, view, decide(view))
        assert node.said.epoch >= before, "an epoch fell"
        self.check()

    def view(self, node: Node) -> View:
        alive = {n: s for n, (at, s) in node.known.items() if self.time - at <= PATIENCE_S}
        node.said = replace(node.said, hears=tuple(n for n in self.order if n in alive))
        plan = node.said.plan
        failed = plan and any(s.plan == plan and s.group == "failed" for s in [node.said, *alive.values()])
        node.failed_at = (self.time if node.failed_at is None else node.failed_at) if failed else None
        return View(
            order=self.order,
            me=node.said,
            heard=alive,
            age_s={n: self.time - at for n, (at, _) in node.known.items()},
            up_s=self.time - node.up_since,
            wait_all_s=5,
            failures=node.failures,
            failed_s=0 if node.failed_at is None else self.time - node.failed_at,
        )

    def obey(self, node: Node, view: View, action) -> None:
        match action:
            case Rest():
                node.said = replace(node.said, plan=None, group="none")
            case Follow(plan):
                assert plan.epoch > node.said.epoch and node.name in plan.members
                self.take(node, plan)
            case Propose():
                plan = Plan(epoch=action.epoch, host=node.name, members=action.members)
                assert majority(plan.members, self.order), "a plan without a majority"
                assert plan.epoch > node.said.epoch and plan.members[0] == node.name
                node.failures += action.kind == "failed"
                self.take(node, plan)
            case End():
                node.said = replace(node.said, plan=None, group="none", verdict=action.verdict)

    def take(self, node: Node, plan: Plan) -> None:
        node.said = replace(node.said, plan=plan, epoch=plan.epoch, begun=True, group="running", cause="")
        node.failed_at = None

    def training(self) -> list[Plan]:
        """Plans that can make a step: every member runs workers in exactly this plan. One asleep holds its group up,
        but may wake, so it counts; a group with a failed process makes no step."""
        running = [n.said.plan for n in self.nodes.values() if n.on and n.said.plan and n.said.group == "running"]
        return [p for p in set(running) if running.count(p) == len(p.members)]

    def check(self) -> None:
        training = self.training()
        assert len(training) <= 1, f"two groups train at once: {training}"
        for plan in training:
            assert self.trained.setdefault(plan.epoch, plan) == plan, "two groups trained in one epoch"

    # -- what can happen -----------------------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        self.nodes[name].on = False

    def back(self, name: str) -> None:
        """Only what is on disk is left: epoch, whether the launch has begun, and whether it has ended."""
        node = self.nodes[name]
        if not node.on:
            said = Said(name=name, epoch=node.said.epoch, begun=node.said.begun, verdict=node.said.verdict)
            self.nodes[name] = Node(name, said, up_since=self.time)

    def sleep(self, name: str) -> None:
        self.nodes[name].awake = False

    def wake(self, name: str) -> None:
        node = self.nodes[name]
        if not node.awake:
            node.awake = True
            node.known.clear()
            node.said = replace(node.said, plan=None, group="none")
            node.up_since = self.time

    def doze(self, name: str) -> None:
        """Wakes without noticing that it slept: its old plan is still its own."""
        self.nodes[name].awake = True

    def crash(self, name: str) -> None:
        node = self.nodes[name]
        if node.on and node.said.group == "running":
            for other in self.nodes.values():  # its group loses it and fails everywhere
                if other.said.plan == node.said.plan and other.said.group == "running":
                    other.said = replace(other.said, group="failed")

    def pass_time(self, seconds: float) -> None:
        self.time += seconds

    def unplug(self, name: str, other: str) -> None:
        if name != other:
            self.cut.add(frozenset((name, other)))

    def plug(self, name: str, other: str) -> None:
        self.cut.discard(frozenset((name, other)))

    def split(self, name: str, side: list[str]) -> None:
        self.cut |= {frozenset((a, b)) for a in side for b in self.order if b not in side}

    def settle(self, seconds: float) -> None:
        for _ in range(int(seconds / ROUND_S)):
            self.time += ROUND_S
            for name in self.order:
                self.act(name)


def happenings(size: int):
    name = st.integers(0, size - 1).map(lambda i: f"n{i}")
    one = st.sampled_from(["act"] * 6 + ["kill", "back", "back", "sleep", "wake", "doze", "crash"])
    return st.lists(
        st.one_of(
            st.tuples(one, name),
            st.tuples(st.sampled_from(["unplug", "plug"]), name, name),
            st.tuples(st.just("split"), name, st.lists(name, unique=True)),
            st.tuples(st.just("pass_time"), st.floats(0.1, 6)),
            st.tuples(st.just("settle"), st.floats(0.5, 8)),
        ),
        max_size=60,
    )


worlds = st.integers(1, 5).flatmap(lambda size: st.tuples(st.just(size), happenings(size)))
thorough = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))


def play(size: int, events: list[tuple]) -> World:
    world = World(size)
    for what, *words in events:
        getattr(world, what)(*words)
        world.check()
    return world


@thorough
@given(worlds)
def test_never_two_groups_and_epochs_only_rise(drawn):
    play(*drawn)


@thorough
@given(worlds, st.data())
def test_whoever_can_talk_and_is_a_majority_trains_in_the_end(drawn, data):
    """Whatever happened before: once a majority is on and hears each other, and nothing more happens, it trains."""
    size, events = drawn
    world = play(size, events)
    side = data.draw(st.lists(st.sampled_from(world.order), unique=True).filter(lambda s: majority(s, world.order)))
    world.cut = {frozenset((a, b)) for a in side for b in world.order if b not in side}
    for name in world.order:
        world.wake(name)
        world.back(name)
        world.nodes[name].failures = 0
    world.settle(60)
    assert [set(plan.members) for plan in world.training()] == [set(side)]
    rest = [n for n in world.order if n not in side]
    assert all(world.nodes[n].said.plan is None for n in rest), "a minority runs workers"
    world.cut.clear()
    world.settle(30)
    assert [set(plan.members) for plan in world.training()] == [set(world.order)]


@thorough
@given(worlds)
def test_links_of_any_kind_never_make_it_thrash(drawn):
    """Cables cut in any pattern, for good: after a while the epochs stand still."""
    world = play(*drawn)
    for name in world.order:
        world.wake(name)
        world.back(name)
        world.nodes[name].failures = 0
    world.settle(60)
    before = [world.nodes[n].said.epoch for n in world.order]
    world.settle(30)
    assert [world.nodes[n].said.epoch for n in world.order] == before


# -- single decisions ---------------------------------------------------------------------------------------------

PAIR, TRIO, FOUR = ("a", "b"), ("a", "b", "c"), ("a", "b", "c", "d")


def said(name: str, order=TRIO, **changes) -> Said:
    return replace(Said(name=name, hears=tuple(n for n in order if n != name)), **changes)


def seen_by(name: str, heard: list[Said], order=TRIO, me: dict | None = None, **facts) -> View:
    own = said(name, order, hears=tuple(s.name for s in heard), **(me or {}))
    facts = {"age_s": {s.name: 0.1 for s in heard}} | facts
    return View(order=order, me=own, heard={s.name: s for s in heard}, **facts)


def test_majorities():
    assert majority(["b", "c"], TRIO) and not majority(["a"], TRIO)
    assert majority(["a"], PAIR) and not majority(["b"], PAIR)
    assert majority(["a", "d"], FOUR) and not majority(["b", "c"], FOUR) and majority(["b", "c", "d"], FOUR)
    assert majority(["a"], ("a",))


def test_the_first_plan_waits_for_all_but_not_for_ever():
    waiting = decide(seen_by("a", [said("b")], up_s=10))
    assert waiting == Rest("waiting up to 60 s for c")
    action = decide(seen_by("a", [said("b")], up_s=61))
    assert isinstance(action, Propose) and action.members == ("a", "b")
    # A launch that has trained already does not wait: its nodes are known to be missing.
    assert isinstance(decide(seen_by("a", [said("b", begun=True)], up_s=10)), Propose)


def test_of_two_the_head_goes_on_and_the_other_waits_and_says_so():
    head = decide(seen_by("a", [], PAIR, me={"begun": True}))
    assert isinstance(head, Propose) and head.members == ("a",)
    other = decide(seen_by("b", [], PAIR))
    assert other == Rest("no answer from a; of two halves the one with a goes on, this one waits")


def test_a_running_host_beats_the_order():
    plan = Plan(epoch=4, host="b", members=("b", "c"))
    returned = decide(seen_by("a", [said("b", plan=plan, epoch=4), said("c", plan=plan, epoch=4)], me={"epoch": 3}))
    assert returned == Rest("waiting for b to take this node in")
    host = decide(seen_by("b", [said("a", epoch=3), said("c", plan=plan, epoch=4)], me={"plan": plan, "epoch": 4}))
    assert isinstance(host, Propose) and (host.kind, host.epoch, host.members) == ("joined", 5, ("b", "c", "a"))


def test_a_plan_older_than_what_this_node_has_seen_is_not_followed():
    plan = Plan(epoch=4, host="b", members=TRIO)
    action = decide(seen_by("a", [said("b", plan=plan, epoch=4)], me={"epoch": 6}))
    assert isinstance(action, Rest)


def test_after_a_failure_everyone_is_heard_before_the_next_plan():
    plan = Plan(epoch=2, host="a", members=TRIO)
    heard = [said("b", plan=plan, epoch=2, group="failed", cause="peer"), said("c", plan=plan, epoch=2)]
    facts = {"me": {"plan": plan, "epoch": 2, "group": "running"}, "failed_s": 0.5}
    assert decide(seen_by("a", heard, **facts, age_s={"b": 0.1, "c": 2.0})) == Keep()
    action = decide(seen_by("a", heard, **facts, age_s={"b": 0.1, "c": 0.2}))
    assert isinstance(action, Propose) and action.kind == "failed" and set(action.members) == set(TRIO)


def test_failures_without_a_step_are_retried_later_and_later_and_end_the_run():
    plan = Plan(epoch=2, host="a", members=TRIO)
    heard = [said(n, plan=plan, epoch=2, group="failed", cause="boom") for n in ("b", "c")]
    me = {"plan": plan, "epoch": 2, "group": "failed"}
    assert decide(seen_by("a", heard, me=me, failures=4, failed_s=1.5)) == Keep()
    assert isinstance(decide(seen_by("a", heard, me=me, failures=4, failed_s=2.5)), Propose)
    action = decide(seen_by("a", heard, me=me, failures=MOST_FAILURES - 1, failed_s=2.5))
    assert isinstance(action, End) and not action.verdict.done and "boom" in action.verdict.reason
    assert [backoff_s(n) for n in range(6)] == [0, 0, 0, 1, 2, 4]


def test_a_node_that_cannot_run_is_left_out_until_too_many_cannot():
    plan = Plan(epoch=2, host="a", members=TRIO)
    broken = said("b", epoch=2, plan=plan, condition="unfit", cause="no GPU")
    action = decide(seen_by("a", [broken, said("c", plan=plan, epoch=2)], me={"plan": plan, "epoch": 2}))
    assert isinstance(action, Propose) and action.members == ("a", "c") and "b (unfit: no GPU)" in action.reason
    second = said("c", condition="unfit", cause="no driver")
    action = decide(seen_by("a", [broken, second]))
    assert action == End(Verdict(done=False, reason="b: no GPU; c: no driver"))


def test_a_stall_is_a_new_plan():
    plan = Plan(epoch=2, host="a", members=TRIO)
    heard = [said("b", plan=plan, epoch=2, cause="a worker is stopped"), said("c", plan=plan, epoch=2)]
    me = {"plan": plan, "epoch": 2, "group": "running"}
    assert decide(seen_by("a", heard, me=me, idle_s=19, limit_s=20)) == Keep()
    action = decide(seen_by("a", heard, me=me, idle_s=21, limit_s=20))
    assert isinstance(action, Propose) and action.kind == "stalled" and "b (a worker is stopped)" in action.reason


def test_only_those_who_hear_one_another_are_members():
    deaf = said("c", hears=("a",))
    assert choose_members({"a": said("a"), "b": said("b"), "c": deaf}, TRIO, "a") == ("a", "b")


def test_a_newcomer_pushes_nobody_out():
    """b is new here and c does not hear it yet: the order alone would take b and drop c."""
    plan = Plan(epoch=2, host="a", members=("a", "c"))
    heard = [said("b"), said("c", plan=plan, epoch=2, hears=("a",))]
    assert decide(seen_by("a", heard, me={"plan": plan, "epoch": 2})) == Keep()


def test_whoever_falls_silent_is_lost_and_not_the_one_who_noticed_first():
    """c has missed b already, the host is about to: it must not drop c."""
    plan = Plan(epoch=2, host="a", members=TRIO)
    heard = [said("b", plan=plan, epoch=2), said("c", plan=plan, epoch=2, hears=("a",))]
    facts = {"me": {"plan": plan, "epoch": 2}, "age_s": {"b": 2.5, "c": 0.1}}
    assert decide(seen_by("a", heard, **facts)) == Keep()
    action = decide(seen_by("a", heard[1:], **facts))
    assert isinstance(action, Propose) and action.members == ("a", "c")
    link = decide(seen_by("a", heard, me=facts["me"]))  # both answer for good: the cable between them is cut
    assert isinstance(link, Propose) and link.members == ("a", "b")


def test_one_that_comes_and_goes_has_to_wait():
    plan = Plan(epoch=2, host="a", members=("a", "b"))
    view = seen_by("a", [said("b", plan=plan, epoch=2), said("c")], me={"plan": plan, "epoch": 2}, welcome=["b"])
    assert decide(view) == Keep()
    assert isinstance(decide(replace(view, welcome=["b", "c"])), Propose)


def test_one_verdict_is_everyones():
    over = Verdict(done=True, reason="all 9 steps are trained")
    assert decide(seen_by("c", [said("b", verdict=over)])) == End(over)
