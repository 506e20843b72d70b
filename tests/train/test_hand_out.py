"""The list from which nodes take answers to make: each is ended once, whoever is slow, and nobody waits for long."""

import random
import threading
import time
from datetime import timedelta

import pytest

from train.errors import PeerFailed
from train.models.sample_tokens import Answer
from train.recipes.grpo import hand_out
from train.recipes.grpo.hand_out import Begun, HandOut, asked, gone, handed, is_over

MOST = 12


class Shared:
    """A rank's world, without a network: what is shared is a record in memory, altered by one at a time."""

    def __init__(self, rank, size, records, lock):
        self.rank, self.size, self.records, self.lock = rank, size, records, lock
        self.patience = timedelta(seconds=20)

    def new_name(self, kind):
        return kind

    def change(self, name, alter):
        with self.lock:
            self.records[name] = alter(self.records.get(name))
            return self.records[name]

    def shared(self, name):
        return self.records[name]

    def require_group(self):
        pass


def worlds(size):
    records, lock = {}, threading.Lock()
    return [Shared(rank, size, records, lock) for rank in range(size)]


def length(number):
    return random.Random(number).randint(1, MOST)


def work(hand, pause_s, at_once, ended):
    """As a node: token by token, side by side, with a look after each."""
    while some := hand.next(at_once):
        while some := [one for one in some if one.number not in hand.given]:
            time.sleep(pause_s)
            some = [Begun(one.number, Answer(tokens=[*one.answer.tokens, hand.rank], log_p=[])) for one in some]
            ended += [one for one in some if len(one.answer.tokens) == length(one.number)]
            going = [one for one in some if len(one.answer.tokens) < length(one.number)]
            kept = hand.stays(going, MOST)
            some = [one for one in going if one.number in kept]


@pytest.mark.parametrize("seed", range(8))
def test_each_answer_is_ended_once_whoever_is_slow(seed, monkeypatch):
    monkeypatch.setattr(hand_out, "LOOK_S", 0.0)
    chance = random.Random(seed)
    size, count, ended = chance.randint(1, 4), chance.randint(1, 30), []
    guesses = [chance.choice([1.0, 1.0, 4.0]) for _ in range(size)]
    hands = [HandOut(world, guesses, count) for world in worlds(size)]
    pauses = [chance.choice([0.0, 0.001, 0.02]) for _ in range(size)]
    threads = [
        threading.Thread(target=work, args=(hand, pause_s, chance.randint(1, 8), ended))
        for hand, pause_s in zip(hands, pauses, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(one.number for one in ended) == list(range(count))
    assert all(len(one.answer.tokens) == length(one.number) for one in ended)


def test_who_waits_takes_over_what_a_slow_one_has_begun(monkeypatch):
    monkeypatch.setattr(hand_out, "LOOK_S", 0.0)
    slow, quick = [HandOut(world, [1.0, 1.0], 8) for world in worlds(2)]
    begun = [Begun(one.number, Answer(tokens=[5], log_p=[-1.0])) for one in slow.next(8)]
    assert [one.number for one in begun] == [0, 1, 2, 3]
    assert slow.stays(begun, MOST) == {0, 1, 2, 3}, "there are answers that nobody has begun"
    assert [one.number for one in quick.next(8)] == [4, 5, 6, 7]
    assert slow.stays(begun, MOST) == {0, 1, 2, 3}, "nobody waits"
    came = []
    waiting = threading.Thread(target=lambda: came.extend(quick.next(8)))
    waiting.start()
    while not slow.world.shared("answers")["idle"]:
        time.sleep(0.001)
    assert slow.stays(begun[2:], 5 - 1) == {2, 3}, "they have too little left"
    assert slow.stays(begun, MOST) == {0, 1}
    waiting.join(20)
    assert came == begun[2:] and slow.given == {2, 3}
    assert slow.stays(begun[:2], MOST) == {0, 1}, "it works again"
    returning = threading.Thread(target=lambda: came.extend(slow.next(8)))
    returning.start()
    while not slow.world.shared("answers")["idle"]:
        time.sleep(0.001)
    assert quick.stays(begun[2:], MOST) == {2}
    returning.join(20)
    assert came[2:] == [begun[3]] and slow.given == {2}, "what comes back is its own again"


def test_the_quicker_one_gets_the_last_answer():
    slow, quick = [HandOut(world, [1.0, 5.0], 1) for world in worlds(2)]
    assert slow.hand_over([Begun(0)], [1]) == set(), "it does not wait"
    quick.world.change("answers", lambda record: asked(asked(record, 0, 1, 1), 1, 1, 1))
    assert slow.hand_over([Begun(0)], [1]) == {0}


def test_shares_at_first_and_then_what_is_left():
    first, second = [HandOut(world, [3.0, 1.0], 16) for world in worlds(2)]
    pieces = [first.next(8), first.next(8), second.next(8)]
    assert [[one.number for one in piece] for piece in pieces] == [[*range(8)], [*range(8, 14)], [14, 15]]


def test_nobody_waits_for_one_whose_rewards_do_not_work():
    record = asked(None, 0, 0, 4)
    assert record["idle"] == [0] and not is_over(record, 2)
    assert is_over(gone(record, 1), 2)
    assert handed(gone(record, 0), {0: [[1, [], []]]})["given"] == {}, "nothing is given to it either"


def test_waiting_has_an_end(monkeypatch):
    first, _ = [HandOut(world, [1.0, 1.0], 0) for world in worlds(2)]
    first.world.patience = timedelta(seconds=0.05)
    with pytest.raises(PeerFailed, match="nobody has ended its answers"):
        first.next(4)
