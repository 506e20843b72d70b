"""The list that a group shares."""

import json

import pytest

from train.pool import pieces
from train.pool.pieces import Done, Known, Piece, Taken


def done(number: int, node: str, generation: int = 1) -> Done:
    return Done(Piece(number, {}), node, 1.0, {"by": node}, generation)


def taken(number: int, *nodes: str) -> Taken:
    return Taken(Piece(number, {}), nodes)


def test_the_first_who_brings_a_piece_counts():
    now = pieces.with_taken(pieces.first_list([], {}), Piece(7, {"a": 1}), "n0")
    now = pieces.with_taken(now, Piece(7, {"a": 1}), "n1")
    assert now["taken"]["7"]["nodes"] == ["n0", "n1"]
    now = pieces.with_done(now, 7, rank=1)
    assert pieces.with_done(now, 7, rank=0) == now == {"taken": {}, "done": [[7, 1]]}


def test_a_note_of_a_piece_that_is_done_is_nobodys():
    now = pieces.with_note(pieces.with_taken(pieces.first_list([], {}), Piece(7, {}), "n0"), 7, {"loss": 2.0})
    assert now["taken"]["7"]["notes"] == [{"loss": 2.0}]
    over = pieces.with_done(now, 7, rank=0)
    assert pieces.with_note(over, 7, {"loss": 1.0}) == over


def test_a_group_begins_with_what_its_members_do_and_have_not_done():
    running = [taken(3, "n0").facts(), None, taken(3, "n2").facts(), taken(5, "n3").facts()]
    found = pieces.first_list(running, {5: done(5, "n1")})
    assert {number: each["nodes"] for number, each in found["taken"].items()} == {"3": ["n0", "n2"]}
    assert found["done"] == []


def test_of_two_results_that_of_the_later_generation_stays():
    assert pieces.newest([{1: 4, 2: 9}, {1: 6}, {1: 6, 3: 2}]) == {1: 1, 2: 0, 3: 2}


@pytest.mark.parametrize(
    ("running_s", "mean_s", "found"),
    [
        ({1: 0.0, 2: 0.0}, {"fast": 1.0, "slow": 4.0, "other": 1.5}, 2),
        ({1: 0.0, 2: 3.0}, {"fast": 1.0, "slow": 4.0, "other": 1.5}, 1),  # the slow one is soon done
        ({1: 1.0, 2: 3.5}, {"fast": 1.0, "slow": 4.0, "other": 1.5}, -1),
        ({1: 0.0, 2: 60.0}, {"fast": 1.0, "slow": 4.0, "other": 1.0}, 2),  # it may be stuck
        ({1: 9.0, 2: 9.0}, {"slow": 4.0, "other": 1.5}, -1),  # how fast this one is nobody knows
    ],
)
def test_who_is_free_does_again_what_it_would_end_first(running_s, mean_s, found):
    assert pieces.worth_again({1: taken(1, "other"), 2: taken(2, "slow")}, running_s, mean_s, "fast") == found


def test_nobody_does_a_piece_twice_at_a_time():
    assert pieces.worth_again({1: taken(1, "slow", "fast")}, {1: 99.0}, {"fast": 1.0, "slow": 4.0}, "fast") == -1


def test_known_pieces_survive_json():
    known = Known(done={1: done(1, "n0")}, taken={2: taken(2, "n1")})
    assert Done.of(json.loads(json.dumps(known.done[1].facts()))) == known.done[1]
    assert Taken.of(json.loads(json.dumps(known.taken[2].facts()))) == known.taken[2]
    assert known.has(1) and known.has(2) and not known.has(3)
