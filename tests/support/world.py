"""A small world of agents: nodes whose words arrive late, whose cables are cut and who are killed, put to sleep and
brought back at any moment. A generation trains only with all of its members."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from train.cluster.membership import (
    Action,
    End,
    Follow,
    Generation,
    Idle,
    NodeStatus,
    NodeView,
    Propose,
    decide,
    majority,
)
from train.plan.stages import Room

ROUND_S = 0.5
PATIENCE_S = 3.0


@dataclass
class Node:
    name: str
    status: NodeStatus
    known: dict[str, tuple[float, NodeStatus]] = field(default_factory=dict)
    up_since: float = 0.0
    on: bool = True
    awake: bool = True
    failed_at: float | None = None
    failures: int = 0


class World:
    """Nodes, cables, a clock. What is true of every moment is asserted after every round of every node."""

    def __init__(self, size: int, room: Room | None = None) -> None:
        self.room = room
        self.order = tuple(f"n{i}" for i in range(size))
        self.nodes = {name: Node(name, NodeStatus(name=name)) for name in self.order}
        self.cut: set[frozenset[str]] = set()
        self.time = 0.0
        self.trained: dict[int, Generation] = {}

    def act(self, name: str) -> None:
        """One round of one agent: learn of whom it can, decide, do it."""
        node = self.nodes[name]
        if not (node.on and node.awake):
            return
        for other in self.nodes.values():
            if other is not node and other.on and other.awake and frozenset((name, other.name)) not in self.cut:
                node.known[other.name] = (self.time, other.status)
        view = self.view(node)
        before = node.status.number
        self.obey(node, view, decide(view))
        assert node.status.number >= before, "a number fell"
        self.check()

    def view(self, node: Node) -> NodeView:
        alive = {n: s for n, (at, s) in node.known.items() if self.time - at <= PATIENCE_S}
        node.status = replace(node.status, reachable=tuple(n for n in self.order if n in alive))
        ours = node.status.generation
        failed = ours and any(s.generation == ours and s.group == "failed" for s in [node.status, *alive.values()])
        node.failed_at = (self.time if node.failed_at is None else node.failed_at) if failed else None
        return NodeView(
            order=self.order,
            me=node.status,
            peers=alive,
            room=self.room,
            age_s={n: self.time - at for n, (at, _) in node.known.items()},
            up_s=self.time - node.up_since,
            wait_all_s=5,
            failures=node.failures,
            failed_s=0 if node.failed_at is None else self.time - node.failed_at,
        )

    def obey(self, node: Node, view: NodeView, action: Action) -> None:
        match action:
            case Idle():
                node.status = replace(node.status, generation=None, group="none")
            case Follow(generation):
                assert generation.number > node.status.number and node.name in generation.members
                self.take(node, generation)
            case Propose():
                generation = Generation(number=action.number, host=node.name, members=action.members)
                assert majority(generation.members, self.order), "a generation without a majority"
                assert not self.room or not self.room.missing(generation.members), "a generation that cannot hold it"
                assert generation.number > node.status.number and generation.members[0] == node.name
                node.failures += action.kind == "failed"
                self.take(node, generation)
            case End():
                node.status = replace(node.status, generation=None, group="none", verdict=action.verdict)

    def take(self, node: Node, generation: Generation) -> None:
        status = replace(node.status, generation=generation, number=generation.number, begun=True)
        node.status = replace(status, group="running", cause="")
        node.failed_at = None

    def training(self) -> list[Generation]:
        """Generations that can make a step: every member runs workers in exactly this one. A node asleep holds its
        group up, but may wake, so it counts; a group with a failed process makes no step."""
        statuses = [node.status for node in self.nodes.values() if node.on and node.status.group == "running"]
        running = [status.generation for status in statuses if status.generation]
        return [p for p in set(running) if running.count(p) == len(p.members)]

    def check(self) -> None:
        training = self.training()
        assert len(training) <= 1, f"two groups train at once: {training}"
        for generation in training:
            before = self.trained.setdefault(generation.number, generation)
            assert before == generation, "two groups trained with one number"

    # -- what can happen -----------------------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        self.nodes[name].on = False

    def back(self, name: str) -> None:
        """Only what is on disk is left: the number, whether the launch has begun, and whether it has ended."""
        node = self.nodes[name]
        if not node.on:
            old = node.status
            status = NodeStatus(name=name, number=old.number, begun=old.begun, verdict=old.verdict)
            status = replace(status, condition=old.condition, cause=old.cause)  # the file is still there
            self.nodes[name] = Node(name, status, up_since=self.time)

    def sleep(self, name: str) -> None:
        self.nodes[name].awake = False

    def wake(self, name: str) -> None:
        node = self.nodes[name]
        if not node.awake:
            node.awake = True
            node.known.clear()
            node.status = replace(node.status, generation=None, group="none")
            node.up_since = self.time

    def doze(self, name: str) -> None:
        """Wakes without noticing that it slept: its old generation is still its own."""
        self.nodes[name].awake = True

    def crash(self, name: str) -> None:
        node = self.nodes[name]
        if node.on and node.status.group == "running":
            for other in self.nodes.values():  # its group loses it and fails everywhere
                if other.status.generation == node.status.generation and other.status.group == "running":
                    other.status = replace(other.status, group="failed")

    def pause(self, name: str) -> None:
        """Somebody plays on it. Its workers go with its next round; until then the others may still count on it."""
        node = self.nodes[name]
        node.status = replace(node.status, condition="away", cause="paused")

    def unpause(self, name: str) -> None:
        node = self.nodes[name]
        node.status = replace(node.status, condition="fit", cause="")

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
