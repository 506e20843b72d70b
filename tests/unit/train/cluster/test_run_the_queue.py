"""One run after the other on a node: whose turn it is, by the queue that its keeper has. Whole nights: tests/sim."""

import hmac
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from train.cluster import run_the_queue
from train.cluster.agent_surroundings import Outside
from train.cluster.node_status import RunEnd
from train.cluster.queue_gossip import QueueKeeper
from train.cluster.timing import TIMING
from train.errors import BadInput
from train.runlog import paths
from train.runlog.queue_order import End, Entry, Queue

NODES = (("a", "10.0.0.1"), ("b", "10.0.0.2"))
FIRST, SECOND = (Entry(launch=f"l{i}", run=f"r{i}", nodes=NODES, added=float(i)) for i in (1, 2))
THIRD = replace(SECOND, launch="l3", run="r3", nodes=NODES[1:], added=3.0)
QUEUE = Queue(key="secret").added(FIRST, SECOND)


class Wire:
    """No network: what is listened on, and what each address answers."""

    def __init__(self) -> None:
        self.served: list[tuple[str, int]] = []
        self.answers: dict[str, Callable[[], Any]] = {}

    def serve(self, address: str, port: int, answer: Any) -> None:
        self.served.append((address, port))

    def connect(self, address: str, *_: Any) -> Any:
        return self.answers[address]()


class Clock(SimpleNamespace):
    """Whoever waits does what comes next in the story."""

    def __init__(self) -> None:
        super().__init__(at=100.0, then=[], started=[])

    def now(self) -> float:
        return float(self.at)

    wall = now

    def sleep(self, seconds: float) -> None:
        self.at += seconds
        self.then.pop(0)()

    def event(self) -> Any:
        return SimpleNamespace(set=lambda: None, clear=lambda: None, wait=lambda _: None)

    def start(self, target: Callable[..., object], *args: Any) -> None:
        self.started.append(target)


@pytest.fixture
def outside() -> Outside:
    return Outside(clock=Clock(), network=Wire(), say=lambda _: None)


def keeper_of(home: Path, outside: Outside, launch: str = "l1", queue: Queue = QUEUE, node: str = "a") -> QueueKeeper:
    (home / "config/queue").mkdir(parents=True, exist_ok=True)
    if queue.entries:
        (home / paths.QUEUE_ASKED).write_text(queue.to_json())
    return QueueKeeper(home, node, launch, outside)


@pytest.fixture
def keeper(tmp_path: Path, outside: Outside) -> QueueKeeper:
    return keeper_of(tmp_path, outside)


def ends(keeper: QueueKeeper, done: bool = True) -> Callable[[], int]:
    def run() -> int:
        keeper.ended(RunEnd(done=done, reason="so"))
        return 0 if done else 1

    return run


def never(*_: Any) -> int:
    raise AssertionError("its turn has not come")


class Becomes(Exception):
    pass


def becomes(entry: Entry) -> None:
    raise Becomes(entry.run)


def next_after(keeper: QueueKeeper, run: Callable[[], int]) -> str:
    """The run whose agent this one becomes."""
    with pytest.raises(Becomes) as became:
        run_the_queue.take_turns(keeper, run, becomes)
    return str(became.value)


@pytest.mark.parametrize("done", [True, False])
def test_the_next_begins_when_one_is_done_or_has_failed(keeper, tmp_path, done):
    assert next_after(keeper, ends(keeper, done)) == "r2"
    kept = Queue.of_json((tmp_path / paths.QUEUE_LIST).read_text())
    assert kept.of("l1").end == End(how="done" if done else "failed", time=100.0, reason="so"), "before it is left"


def test_after_the_last_nothing_is_left_to_do(tmp_path, outside):
    keeper = keeper_of(tmp_path, outside, "l2", QUEUE.ended("l1", End(how="done")))
    assert keeper.is_last()
    assert run_the_queue.take_turns(keeper, ends(keeper, False), never) == 1


def test_without_a_queue_a_run_is_as_ever(tmp_path, outside):
    keeper = keeper_of(tmp_path, outside, queue=Queue())
    assert run_the_queue.take_turns(keeper, lambda: 70, never) == 70
    assert run_the_queue.take_turns(keeper, lambda: 0, never) == 0
    assert not outside.network.served and not (tmp_path / paths.QUEUE_LIST).exists()
    assert keeper.verdict() is None and not keeper.is_to_leave() and not keeper.is_alone() and keeper.is_last()


def test_a_queue_may_come_while_a_run_is_on(tmp_path, outside):
    keeper = keeper_of(tmp_path, outside, queue=Queue())

    def run():
        (tmp_path / paths.QUEUE_ASKED).write_text(QUEUE.to_json())
        keeper.look()
        return ends(keeper)()

    assert next_after(keeper, run) == "r2"
    assert outside.network.served == [("10.0.0.1", 29405)]


def test_a_node_without_a_part_in_a_run_waits_for_the_one_that_has(tmp_path, outside):
    others = Queue(key="k").added(THIRD, FIRST)
    keeper = keeper_of(tmp_path, outside, "l1", others)
    outside.clock.then = [lambda: None, lambda: keeper.take(others.ended("l3", End(how="failed")))]
    ran: list[int] = []
    assert run_the_queue.take_turns(keeper, lambda: ran.append(1) or ends(keeper)(), never) == 0 and ran == [1]


@pytest.mark.parametrize("status", [143, 70])
def test_a_run_that_is_stopped_on_this_node_alone_ends_here_as_without_a_queue(tmp_path, outside, status):
    assert run_the_queue.take_turns(keeper_of(tmp_path, outside), lambda: status, never) == status


def test_a_signal_at_the_end_of_a_run_is_obeyed(keeper):
    """The machine goes down: what comes next begins when it is back."""

    def run():
        keeper.is_asked_to_end = True
        return ends(keeper)()

    assert run_the_queue.take_turns(keeper, run, never) == 0


@pytest.mark.parametrize("how", ["stopped", "removed"])
def test_a_run_that_a_person_ends_is_left_for_the_next(keeper, tmp_path, outside, how):
    assert not keeper.is_to_leave()
    keeper.take(QUEUE.ended("l1", End(how=how)))
    assert keeper.is_to_leave() and keeper.verdict() is None
    assert next_after(keeper_of(tmp_path, outside), never) == "r2", "also where it is asked only after a power cut"


def test_a_run_before_which_another_is_moved_is_left_and_comes_back(keeper):

    def run():
        keeper.take(QUEUE.moved("r2", 1))
        assert run_the_queue.TurnSignals(keeper).time_is_over()
        return 143

    assert next_after(keeper, run) == "r2"
    assert keeper.queue.of("l1").end is None


@pytest.mark.parametrize("how", ["done", "failed"])
def test_how_a_run_ended_elsewhere_is_this_nodes_verdict(keeper, how):
    assert keeper.verdict() is None
    keeper.take(QUEUE.ended("l1", End(how=how, reason="said so")))
    assert keeper.verdict() == RunEnd(done=how == "done", reason="said so")


def test_where_no_machine_keeps_the_queue_any_more_it_is_over(keeper, outside):
    """Ten minutes of answers that nobody is there; a machine that is off, or one answer, says nothing of that."""
    answers = outside.network.answers
    answers["10.0.0.2"] = Mock(side_effect=ConnectionRefusedError)
    times = int(TIMING.over_s / TIMING.queue_ask_s)
    for _ in range(times):
        keeper._ask("b", "10.0.0.2")
    assert not keeper.is_alone()
    keeper._ask("b", "10.0.0.2")
    assert keeper.is_alone() and run_the_queue.TurnSignals(keeper).time_is_over() and not keeper.has_left
    assert run_the_queue.take_turns(keeper, never, never) == 0
    keeper.has_group = True  # it trains alone, as whoever listed it first may
    assert not keeper.is_alone()
    keeper.has_group = False
    assert not keeper.is_alone(), "and then it waits as long as ever"
    for _ in range(times + 1):
        keeper._ask("b", "10.0.0.2")
    assert keeper.is_alone()
    answers["10.0.0.2"] = Mock(side_effect=TimeoutError)
    keeper._ask("b", "10.0.0.2")
    assert not keeper.is_alone()


def test_a_machine_that_no_run_waits_for_may_have_no_agent_all_night(tmp_path, outside):
    alone = Entry(launch="l9", run="r9", nodes=NODES[:1], added=9.0)
    queue = QUEUE.ended("l1", End(how="done")).ended("l2", End(how="done")).added(alone)
    keeper = keeper_of(tmp_path, outside, launch="l9", queue=queue)
    keeper.refusals = {"b": 10**6}
    assert not keeper.is_alone()


def test_only_who_has_the_queues_secret_is_listened_to(keeper, tmp_path, outside):
    other = keeper_of(tmp_path / "b", outside, queue=QUEUE.ended("l1", End(how="done")), node="b")
    assert keeper.unpack(other.pack()).of("l1").end.how == "done"
    text = other.queue.to_json().encode()
    forged = hmac.digest(b"guessed", text, "sha256").hex().encode() + b" " + text + b"\n"
    for line in (forged, other.pack()[:-1], other.pack().replace(b"done", b"failed"), b"", b"\n"):
        with pytest.raises(ValueError, match="MAC"):
            keeper.unpack(line)
    assert b"secret" not in other.pack(), "it is not sent"
    keeper.take(keeper.unpack(other.pack()))
    assert keeper.queue.key == "secret"


def test_a_full_disk_is_tried_again(keeper, tmp_path, outside, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(outside.disk, "write", Mock(side_effect=OSError(28, "No space left on device")))
        keeper.ended(RunEnd(done=True, reason="so"))
    assert Queue.of_json((tmp_path / paths.QUEUE_LIST).read_text()).of("l1").end is None
    keeper.look()
    assert Queue.of_json((tmp_path / paths.QUEUE_LIST).read_text()).of("l1").end is not None


def launched(home: Path, monkeypatch: pytest.MonkeyPatch, outside: Outside, started: str = "launch") -> Path:
    """The cluster file of a launch whose token is t."""
    monkeypatch.setenv("MOTLEY_STARTED", started)
    monkeypatch.setattr(run_the_queue, "Outside", lambda: outside)
    (home / "config/queue").mkdir(parents=True)
    (home / paths.SECRET).write_text('{"token": "t"}')
    file = home / paths.CLUSTER
    file.write_text("run: r1\nnode: a\nnodes:\n  - {name: a, address: 10.0.0.1, processes: 1}\n")
    return file


HERE = replace(FIRST, launch=run_the_queue.launch_of("t"))
"""What that launch is in the queue."""


def torn(_: QueueKeeper) -> int:
    raise BadInput("the settings are torn")


def test_a_node_that_cannot_take_part_waits_for_the_next_run(tmp_path, outside, monkeypatch):
    """Its own files of this run are bad: the others train, and it stays in the queue."""
    file = launched(tmp_path, monkeypatch, outside)
    queue = Queue(key="k").added(HERE, SECOND)
    (tmp_path / paths.QUEUE_ASKED).write_text(queue.to_json())
    monkeypatch.setattr(run_the_queue, "put_in_place", lambda _, entry: becomes(entry))
    kept: list[QueueKeeper] = []

    def run(keeper):
        kept.append(keeper)
        return torn(keeper)

    ended = queue.ended(HERE.launch, End(how="done"))
    outside.clock.then = [lambda: None, lambda: kept[0].take(ended)]
    with pytest.raises(Becomes, match="r2"):
        run_the_queue.agent_in_turn(tmp_path, file, run)


def test_who_starts_it_by_hand_means_the_run_that_is_here(tmp_path, outside, monkeypatch):
    """Whatever the queue says of it: it was stopped, and another one has its turn."""
    file = launched(tmp_path, monkeypatch, outside, started="")
    queue = Queue(key="k").added(HERE, SECOND).ended(HERE.launch, End(how="stopped"))
    (tmp_path / paths.QUEUE_ASKED).write_text(queue.to_json())
    monkeypatch.setattr(run_the_queue, "put_in_place", never)
    begun: list[bool] = []

    def run(keeper):
        begun.append(keeper.is_to_leave())
        return 143

    assert run_the_queue.agent_in_turn(tmp_path, file, run) == 143 and begun == [False]
    monkeypatch.setenv("MOTLEY_STARTED", "launch")
    with pytest.raises(AssertionError):  # its turn is another's, whose files would be put in place
        run_the_queue.agent_in_turn(tmp_path, file, run)


def test_without_a_queue_bad_input_ends_it(tmp_path, outside, monkeypatch):
    with pytest.raises(BadInput, match="torn"):
        run_the_queue.agent_in_turn(tmp_path, launched(tmp_path, monkeypatch, outside), torn)
