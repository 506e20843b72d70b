"""What nodes know of each other's messages: merged in any order it is the same, and it does not grow for ever."""

import itertools
import json
from dataclasses import asdict, replace

from train.cluster.notice_ledger import EMPTY, Ledger, Loss, Lost
from train.send_notice import Notice

ORDER = ("a", "b", "c", "d")
WHY = dict.fromkeys(ORDER, Lost("silent", "silent"))


def test_who_is_missing_still_is_missing_since_then():
    first = EMPTY.followed_by(1, ORDER, ORDER, WHY, 10.0)
    assert first.lost == ()
    second = first.followed_by(2, ("a", "b", "c"), ORDER, WHY, 20.0)
    third = second.followed_by(3, ("b", "c"), ORDER, WHY, 30.0)
    assert [(loss.name, loss.number, loss.time) for loss in third.lost] == [("a", 3, 30.0), ("d", 2, 20.0)]
    assert [loss.name for loss in third.followed_by(4, ("b", "c", "d"), ORDER, WHY, 40.0).lost] == ["a"]


def test_the_newest_generation_counts_and_nothing_that_was_sent_is_forgotten():
    old = Ledger(number=2, members=("a",), lost=(Loss(name="d", number=2, time=1.0, reason=""),), sent=("lost-2-d",))
    new = replace(old, number=3, members=("b",), sent=("waiting-3",))
    done = Ledger(sent=("done",))
    for one, two, three in itertools.permutations((old, new, done)):
        merged = one.merged(two).merged(three)
        assert (merged.number, merged.members) == (3, ("b",))
        assert merged.sent == ("done", "lost-2-d", "waiting-3")
        assert merged.unsent([Notice("done", "r", ""), Notice("lost", "r", "", "2-d")]) == []


def test_what_cannot_come_again_is_forgotten():
    ledger = Ledger(number=2, sent=("lost-2-d", "waiting-2"), lost=(Loss(name="d", number=2, time=1.0, reason=""),))
    back = ledger.followed_by(3, ORDER, ORDER, WHY, 20.0)
    assert back.sent == () and back.merged(ledger).sent == ()
    again = back.followed_by(4, ("a", "b", "c"), ORDER, WHY, 30.0).merged(ledger)
    assert again.unsent([Notice("lost", "r", "", "4-d")]), "a second loss is another one"


def test_it_survives_a_file():
    ledger = Ledger(number=2, members=("a",), lost=(Loss(name="d", number=2, time=1.0, reason=""),), sent=("done",))
    assert Ledger.of(json.loads(json.dumps(asdict(ledger)))) == ledger
