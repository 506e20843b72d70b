"""What can happen to a played cluster: each kind begins, lasts, and is over. A story is a list of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from tests.sim.played import Machine

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster


@dataclass(frozen=True)
class Fault:
    kind: str
    at: float
    lasts_s: float
    who: int
    other: int = 0

    @property
    def over_at(self) -> float:
        return self.at + (3 * (7 + self.lasts_s) if self.kind == "comes and goes" else self.lasts_s)

    def __str__(self) -> str:
        return f"{self.at:6.2f} s  {self.kind} of n{self.who} (n{self.other}), {self.lasts_s:.2f} s"


OWN = {"worker dies": 1, "worker fails": 1, "next workers fail": 2, "worker cannot be ended": 1}
"""How many failures of its own each is: after three in a row a node rests."""
HANGS = {"worker hangs", "worker cannot be ended", "worker stopped"}
FAILS = {"worker dies", "worker fails", "next workers fail", "slow start", "slow save"}

Begins = Callable[["Cluster", Fault, str, str], object]
"""With the names of the two that it is about. Returns what ends it."""
KINDS: dict[str, tuple[Begins, float, float]] = {}
"""By name: how it begins, and how long it lasts, from and to."""


def kind(least_s: float, most_s: float) -> Callable[[Begins], Begins]:
    def known(begins: Begins) -> Begins:
        KINDS[begins.__name__.strip("_").replace("_", " ")] = (begins, least_s, most_s)
        return begins

    return known


def drawn(dice: Random, size: int, count: int, within_s: float) -> list[Fault]:
    found = []
    for _ in range(count):
        name = dice.choice(sorted(KINDS))
        _, least_s, most_s = KINDS[name]
        who = dice.randrange(size)
        other = dice.choice([i for i in range(size) if i != who])
        lasts_s = round(least_s + (most_s - least_s) * dice.random() ** 2, 2)
        found.append(Fault(name, round(within_s * dice.random(), 2), lasts_s, who, other))
    return sorted(found, key=lambda fault: fault.at)


# -- machines ----------------------------------------------------------------------------------------------------------


@kind(0.2, 12)
def power_cut(cluster: Cluster, _: Fault, name: str, __: str) -> object:
    cluster.power_off(name)
    return lambda: cluster.power_on(name)


@kind(0.5, 3)
def comes_and_goes(cluster: Cluster, fault: Fault, name: str, _: str) -> object:
    """Three times: there for some seconds, and away again."""
    for i in range(3):
        cluster.play.after(i * (7 + fault.lasts_s), cluster.power_off, name)
        cluster.play.after(i * (7 + fault.lasts_s) + fault.lasts_s, cluster.power_on, name)
    return None


@kind(0.5, 12)
def sleep(cluster: Cluster, _: Fault, name: str, __: str) -> object:
    cluster.fall_asleep(name)
    return lambda: cluster.wake(name)


@kind(0.5, 10)
def agent_stopped(cluster: Cluster, _: Fault, name: str, __: str) -> object:
    """As by SIGSTOP, or where a machine is so busy that it gets no time."""
    cluster.freeze(name)
    return lambda: cluster.thaw(name)


@kind(0.5, 4)
def agent_killed(cluster: Cluster, _: Fault, name: str, __: str) -> object:
    cluster.kill_agent(name)
    return lambda: cluster.start_agent(name)


@kind(5, 12)
def agent_asked_to_end(cluster: Cluster, _: Fault, name: str, __: str) -> object:
    cluster.ask_to_end(name)
    return lambda: cluster.start_agent(name)


@kind(1, 12)
def clock_set(cluster: Cluster, fault: Fault, name: str, _: str) -> object:
    """To another time of the day, forwards or back, and later right again."""
    cluster.machines[name].clock_off_s = (fault.lasts_s - 6) * 1000
    return lambda: setattr(cluster.machines[name], "clock_off_s", 0.0)


def machine_is(**facts: object) -> Begins:
    def begins(cluster: Cluster, _: Fault, name: str, __: str) -> object:
        machine = cluster.machines[name]
        vars(machine).update(facts)
        return lambda: vars(machine).update({fact: getattr(Machine, fact) for fact in facts})

    return begins


KINDS |= {
    "paused": (machine_is(paused=True), 1, 10),  # somebody uses it
    "full disk": (machine_is(disk_is_full=True), 1, 12),
    "slow disk": (machine_is(disk_takes_s=0.6), 1, 10),
    "taken ports": (machine_is(taken_ports=True), 1, 12),
}


# -- links -------------------------------------------------------------------------------------------------------------


def cut(cluster: Cluster, ways: set[tuple[str, str]]) -> object:
    cluster.cut(ways)
    return lambda: cluster.plug(ways)


@kind(0.2, 12)
def cable_out(cluster: Cluster, _: Fault, name: str, __: str) -> object:
    others = [other for other in cluster.order if other != name]
    return cut(cluster, {way for other in others for way in ((name, other), (other, name))})


@kind(0.5, 12)
def link_cut(cluster: Cluster, _: Fault, name: str, other: str) -> object:
    return cut(cluster, {(name, other), (other, name)})


@kind(0.5, 12)
def one_way_cut(cluster: Cluster, _: Fault, name: str, other: str) -> object:
    return cut(cluster, {(name, other)})


@kind(1, 12)
def firewall_up(cluster: Cluster, _: Fault, name: str, __: str) -> object:
    """It takes no connection; its own get through."""
    cluster.closed.add(name)
    return lambda: cluster.closed.discard(name)


@kind(0.5, 12)
def partition(cluster: Cluster, fault: Fault, name: str, _: str) -> object:
    size = len(cluster.order)
    side = {cluster.order[(fault.who + i) % size] for i in range(1 + fault.other % max(1, size // 2))} | {name}
    rest = [other for other in cluster.order if other not in side]
    return cut(cluster, {way for one in side for other in rest for way in ((one, other), (other, one))})


@kind(1, 10)
def late_words(cluster: Cluster, _: Fault, name: str, __: str) -> object:
    """Lost and sent again, or overtaken: up to 0.8 s each."""
    ways = [(name, other) for other in cluster.order] + [(other, name) for other in cluster.order]
    cluster.play.lag_s |= dict.fromkeys(ways, 0.8)
    return lambda: [cluster.play.lag_s.pop(way, None) for way in ways]


@kind(1, 12)
def told_twice(cluster: Cluster, _: Fault, name: str, __: str) -> object:
    """Somebody records what it is asked, and asks it again."""
    cluster.play.twice.add(name)
    return lambda: cluster.play.twice.discard(name)


# -- workers -----------------------------------------------------------------------------------------------------------


@kind(0, 0)
def worker_dies(cluster: Cluster, _: Fault, name: str, __: str) -> object:
    return cluster.training.end_workers(name)


@kind(0, 0)
def worker_fails(cluster: Cluster, _: Fault, name: str, __: str) -> object:
    for worker in cluster.training.nodes[name].workers:
        worker.fails("own", "CUDA error: an illegal memory access was encountered")
    return None


@kind(0, 0)
def next_workers_fail(cluster: Cluster, _: Fault, name: str, __: str) -> object:
    cluster.training.nodes[name].fails = ["out of memory"]
    cluster.training.end_workers(name)
    return None


@kind(2, 8)
def worker_hangs(cluster: Cluster, _: Fault, name: str, __: str) -> object:
    """It never comes back by itself."""
    for worker in cluster.training.nodes[name].workers:
        worker.is_hung = worker.step >= 0
    return None


@kind(1, 10)
def worker_stopped(cluster: Cluster, _: Fault, name: str, __: str) -> object:
    workers = list(cluster.training.nodes[name].workers)
    for worker in workers:
        worker.is_halted = True
    return lambda: [setattr(worker, "is_halted", False) for worker in workers]


@kind(2, 12)
def worker_cannot_be_ended(cluster: Cluster, _: Fault, name: str, __: str) -> object:
    """Its card is gone from the bus: it waits in the kernel."""
    node = cluster.training.nodes[name]
    node.cannot_end = True
    for worker in node.workers:
        worker.is_hung = True
    return lambda: cluster.kernel_lets_go(name)


@kind(3, 10)
def slow_start(cluster: Cluster, _: Fault, name: str, __: str) -> object:
    node = cluster.training.nodes[name]
    before, node.loads_s = node.loads_s, node.loads_s + 8
    return lambda: setattr(node, "loads_s", before)


@kind(3, 10)
def slow_save(cluster: Cluster, _: Fault, name: str, __: str) -> object:
    """From main memory to the disk."""
    node = cluster.training.nodes[name]
    before, node.keeps_s = node.keeps_s, 6.0
    return lambda: setattr(node, "keeps_s", before)
