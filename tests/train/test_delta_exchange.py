"""Deltas in 4 bits: what arrives is what was taken for sent, and nothing is lost for good."""

import pytest
import torch

from train.parallel.delta_exchange import BLOCK, LEVELS, Exchange, Packed
from train.parallel.process_group import World


@pytest.mark.parametrize("count", [1, BLOCK - 1, BLOCK, 5 * BLOCK + 3])
def test_what_arrives_is_within_half_a_level(count):
    delta = torch.randn(count, generator=torch.Generator().manual_seed(count)) * 1e-3
    read = Packed.of(delta).read()
    assert read.shape == delta.shape
    for own, sent in zip(delta.split(BLOCK), read.split(BLOCK), strict=True):
        assert (own - sent).abs().max() <= own.abs().max() / LEVELS * 0.54  # the scale itself has eight bits


def test_it_travels_in_an_eighth_of_the_bytes():
    assert Packed.of(torch.ones(100 * BLOCK)).codes.numel() == 100 * (BLOCK // 2 + 2)


def test_nothing_moved_is_nothing_sent():
    assert torch.equal(Packed.of(torch.zeros(70)).read(), torch.zeros(70))


def test_what_rounding_left_out_travels_with_the_next():
    """A weight that moves by a hundredth of its block's largest arrives after some rounds."""
    moved = torch.full((BLOCK,), 0.01)
    moved[0] = 1.0
    own, arrived = torch.zeros(BLOCK), torch.zeros(BLOCK)
    for _ in range(50):
        own = own + moved
        arrived = arrived + Packed.of(own - arrived).read()
    assert (own - arrived).abs().max() < 0.1 and arrived[1] > 0.4


def test_the_average_is_by_tokens_and_of_those_who_trained():
    """What ranks without tokens send does not count, whatever it is."""
    mine = Exchange(torch.ones(4), [1], World(), None)
    assert torch.equal(mine.average(), mine.sent)
    many = Exchange(torch.ones(4), [3, 1, 0], World(), None)
    many.everyone = [Packed.of(torch.full((4,), value)).codes for value in (7.0, 14.0, 700.0)]
    many.work, many.world = "done", Done()
    assert torch.allclose(many.average(), torch.full((4,), 0.75 * 7 + 0.25 * 14))


class Done:
    def finish(self, work):
        assert work == "done"
