"""The queue's rules, and that it does not matter in which order what is known of it meets."""

import itertools
from dataclasses import replace

import pytest

from train.runlog.queue_order import KEPT_ENDS, MOST_WAITING, End, Entry, Queue, Refused, launch_of, merged, names_of

NODES = (("a", "10.0.0.1"), ("b", "10.0.0.2"))
A, B, C = (Entry(launch=f"l{i}", run=run, nodes=NODES, added=10.0 + i) for i, run in enumerate("ABC"))
ABC = Queue(key="k").added(A, B, C)


def order(queue: Queue) -> str:
    return "".join(one.run for one in queue.waiting())


def test_runs_follow_in_the_order_in_which_they_were_added():
    assert order(ABC) == "ABC" and ABC.turn() is not None and ABC.turn().run == "A"
    assert order(ABC.ended("l0", End(how="failed", reason="no"))) == "BC", "one that failed stops none"
    assert order(ABC.ended("l1", End(how="removed"))) == "AC"
    assert Queue().turn() is None
    assert names_of(ABC.waiting()) == "A, B, C"


@pytest.mark.parametrize(
    ("run", "to", "then"), [("C", 1, "CAB"), ("C", 2, "ACB"), ("A", 3, "BCA"), ("A", 2, "BAC"), ("B", 2, "ABC")]
)
def test_a_run_is_moved(run, to, then):
    assert order(ABC.moved(run, to)) == then
    again = ABC.moved(run, to).moved("B", 1)
    assert order(again)[0] == "B"


def test_a_run_is_moved_between_two_that_two_people_added_at_once():
    """Both have the same place then, and which is first follows from when they were added."""
    both = Queue(key="k").added(A).merged(Queue(key="k").added(B)).added(C)
    assert order(both) == "ABC"
    moved = both.moved("C", 2)
    assert order(moved) == order(both.merged(moved)) == "ACB"
    assert order(moved.moved("A", 2)) == "CAB"


def test_what_is_no_change_is_refused_with_what_to_do():
    with pytest.raises(Refused, match="to: 4 is no place\nfix: a number from 1 to 3"):
        ABC.moved("A", 4)
    with pytest.raises(Refused, match="no run 'X' is in the queue\nfix: one of A, B, C"):
        ABC.without("X", 1.0)
    with pytest.raises(Refused, match="nothing waits there"):
        Queue().moved("A", 1)
    with pytest.raises(Refused, match="'A' is in the queue already\nfix: --run NAME"):
        ABC.added(replace(A, launch="new"))
    full = Queue().added(*(replace(A, launch=f"{i}", run=f"{i}") for i in range(MOST_WAITING)))
    with pytest.raises(Refused, match=f"{MOST_WAITING} runs wait already"):
        full.added(A)


def test_a_run_that_has_ended_may_come_again():
    once = ABC.ended("l0", End(how="done"))
    assert order(once.added(replace(A, launch="again"))) == "BCA"


def test_two_adds_are_never_at_the_same_time():
    queue = Queue().added(replace(A, added=50.0), replace(B, added=7.0))
    assert [one.added for one in queue.entries] == [50.0, 50.001], "a controller whose clock is behind"


CHANGES = (
    lambda q: q.ended("l0", End(how="done", time=5.0, reason="all steps")),
    lambda q: q.ended("l0", End(how="stopped", time=4.0)),
    lambda q: q.ended("l1", End(how="failed", time=6.0, reason="x")),
    lambda q: q.ended("l1", End(how="failed", time=6.5, reason="y")),
    lambda q: q.moved("C", 1),
    lambda q: q.moved("B", 3),
    lambda q: q.added(Entry(launch="l9", run="D", nodes=NODES, added=20.0)),
    lambda q: replace(q, forgotten=10.5, entries=q.entries[1:]),
    lambda q: Queue(),
    lambda q: q.without("C", 3.0),
)
"""What nodes that do not reach each other may come to know."""


def test_whatever_order_lists_meet_in_the_result_is_the_same():
    """A merge is a join: it commutes, it associates, and what comes twice changes nothing."""
    known = [change(ABC) for change in CHANGES]
    for one, other in itertools.product(known, repeat=2):
        assert one.merged(other) == other.merged(one)
        assert one.merged(other).merged(other) == one.merged(other)
        assert one.merged(one) == one
    for one, other, third in itertools.combinations(known, 3):
        results = {merged(some).to_json() for some in itertools.permutations((one, other, third))}
        assert len(results) == 1
        assert one.merged(other).merged(third) == one.merged(other.merged(third))


def test_the_surest_end_and_the_newest_place_count():
    both = CHANGES[0](ABC).merged(CHANGES[1](ABC))
    assert both.of("l0").end == End(how="done", time=5.0, reason="all steps")
    assert CHANGES[2](ABC).merged(CHANGES[3](ABC)).of("l1").end.reason == "x", "of two that are as sure the earlier one"
    twice = ABC.moved("C", 1).moved("C", 3)
    assert order(ABC.moved("C", 1).merged(twice)) == "ABC"


def test_what_has_ended_long_ago_is_forgotten_and_stays_ended():
    queue, first = Queue(key="k"), Queue()
    for i in range(KEPT_ENDS + 5):
        queue = queue.added(replace(A, launch=f"{i}", run=f"r{i}", added=float(i + 1)))
        first = first if first.entries else queue
        queue = queue.ended(f"{i}", End(how="done"))
    queue = queue.added(B)
    assert len(queue.entries) == KEPT_ENDS + 1
    back = first.merged(queue)  # a node that was off since the first of them
    assert order(back) == "B" and back == queue


def test_what_waits_is_never_forgotten():
    queue = Queue(key="k").added(A)
    for i in range(KEPT_ENDS + 5):
        queue = queue.added(replace(B, launch=f"b{i}")).ended(f"b{i}", End(how="done"))
    assert order(queue) == "A"


def test_it_is_read_as_it_was_written_and_what_is_none_is_refused():
    queue = ABC.ended("l0", End(how="done", time=1.5, reason="ok")).moved("C", 1)
    assert Queue.of_json(queue.to_json()) == queue
    for odd in ("", "[]", "{}", '{"entries": [{}]}', '{"entries": 3}', queue.to_json().replace('"done"', '"lost"')):
        with pytest.raises(ValueError):
            Queue.of_json(odd)


def test_a_full_queue_fits_into_what_nodes_read_of_a_message():
    nodes = tuple((f"a-long-name-{i:02}", f"192.168.100.{i:03}") for i in range(16))
    one = Entry(launch="0" * 16, run="r" * 40, nodes=nodes, added=1700000000.123, end=End(how="done", reason="y" * 200))
    entries = tuple(replace(one, launch=f"{i:016}") for i in range(KEPT_ENDS + MOST_WAITING))
    assert len(Queue(key="k" * 64, entries=entries).to_json()) < 60_000


def test_a_launch_is_named_by_a_hash_of_its_token():
    assert launch_of("secret") == launch_of("secret") != launch_of("other") and "secret" not in launch_of("secret")


def test_who_is_concerned_and_where_they_are():
    only_b = replace(B, nodes=(("b", "10.0.0.9"), ("c", "10.0.0.3")))
    queue = Queue().added(A, only_b)
    assert queue.concerns("c") and not queue.ended("l1", End(how="done")).concerns("c")
    assert queue.addresses() == {"a": "10.0.0.1", "b": "10.0.0.9", "c": "10.0.0.3"}
