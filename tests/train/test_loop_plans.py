"""The pure functions that a run plans with, over all inputs."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.data.mix_data_sets import rows_of_step
from train.engine import micro_batch_search
from train.engine.make_optimizer import learning_rate
from train.plan.speed.row_split import spans, split_rows

GB = 10**9
weights = st.lists(st.floats(0, 1000), min_size=1, max_size=8).filter(lambda w: sum(w) > 1e-3)


@given(st.integers(0, 500), weights)
def test_shares_are_whole_rows_that_add_up(total, shares):
    """What is left over goes to the largest remainders."""
    exact = [total * weight / sum(shares) for weight in shares]
    counts = split_rows(total, shares)
    assert sum(counts) == total and min(counts) >= 0
    assert all(abs(count - part) < 1 + 1e-9 for part, count in zip(exact, counts, strict=True))
    assert all(count == 0 for count, weight in zip(counts, shares, strict=True) if not weight)
    given = [part - int(part) for part, count in zip(exact, counts, strict=True) if count > int(part)]
    passed_over = [part - int(part) for part, count in zip(exact, counts, strict=True) if count == int(part)]
    assert min(given, default=1) >= max(passed_over, default=0) - 1e-9


@given(st.integers(1, 500), weights, st.floats(0.01, 100))
def test_only_proportions_matter(total, shares, factor):
    exact = [total * w / sum(shares) for w in shares]
    remainders = sorted(part - int(part) for part in exact)
    if all(b - a > 1e-6 for a, b in pairwise(remainders)):  # ties may round either way
        assert split_rows(total, shares) == split_rows(total, [factor * w for w in shares])


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8))
def test_slices_tile_the_step(counts):
    assert [row for first, end in spans(counts) for row in range(first, end)] == list(range(sum(counts)))


@pytest.mark.parametrize("bad", [[], [0, 0], [1, -1]])
def test_no_rows_for_nobody(bad):
    with pytest.raises(ValueError, match="weights"):
        split_rows(4, bad)


@given(rows=st.integers(1, 40), rows_per_step=st.integers(1, 100), seed=st.integers(0, 2**40))
def test_an_epoch_has_each_row_once_whatever_the_step_size(rows, rows_per_step, seed):
    steps = -(-3 * rows // rows_per_step)
    stream = [
        row for step in range(steps) for row in rows_of_step(step, rows=rows, rows_per_step=rows_per_step, seed=seed)
    ]
    for epoch in range(3):
        assert sorted(stream[epoch * rows : (epoch + 1) * rows]) == list(range(rows))


def test_epochs_differ_in_order_and_seeds_too():
    first, second = (rows_of_step(step, rows=50, rows_per_step=50, seed=1) for step in (0, 1))
    assert first != second != rows_of_step(0, rows=50, rows_per_step=50, seed=2)


@given(st.integers(0, 200), st.integers(1, 200), st.sampled_from(["cosine", "linear", "constant"]))
def test_the_rate_rises_then_never_rises_again(warmup, total, kind):
    options = {"peak": 1.0, "kind": kind, "warmup_steps": warmup, "total_steps": total}
    rates = [learning_rate(step, **options) for step in range(total)]
    assert all(0 <= rate <= 1 for rate in rates)
    assert rates[:warmup] == sorted(rates[:warmup])
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)


class Device:
    """A simulated card: so much for the model, so much a row, and no more than it has."""

    def __init__(self, base: int, row: int, memory: int) -> None:
        self.base, self.row, self.memory = base, row, memory
        self.tried: list[int] = []

    def __call__(self, micro_batch: int) -> int:
        self.tried.append(micro_batch)
        needed = self.base + self.row * micro_batch
        if needed > self.memory:
            raise micro_batch_search.OutOfMemoryError("simulated")
        return needed


@given(st.integers(0, 20 * GB), st.integers(1, 5 * GB), st.integers(1, 24 * GB), st.floats(0.3, 1), st.integers(1, 64))
def test_the_largest_micro_batch_under_the_ceiling_is_found(base, row, memory, share, most):
    device = Device(base, row, memory)
    ceiling = int(share * memory)
    fits = [size for size in (1, 2, 4, 8, 16, 32, 64) if size <= most and base + row * size <= ceiling]
    if not fits:
        with pytest.raises(micro_batch_search.OutOfMemoryError):
            micro_batch_search.find(device, ceiling_bytes=ceiling, most=most)
    else:
        assert micro_batch_search.find(device, ceiling_bytes=ceiling, most=most)[0] == max(fits)


def test_a_size_that_is_predicted_to_be_too_large_is_not_tried():
    device = Device(4 * GB, 1 * GB, 24 * GB)
    size, why = micro_batch_search.find(device, ceiling_bytes=18 * GB, most=64)
    assert size == 8
    assert device.tried == [1, 2, 4, 8]
    assert "16 would need 20.0 GB of 18.0 GB" in why


@pytest.mark.parametrize(("most", "why"), [(16, "all 16 rows at once"), (12, "16 are more than all 12 rows")])
def test_it_says_that_there_are_no_more_rows(most, why):
    size, said = micro_batch_search.find(Device(GB, GB, 99 * GB), ceiling_bytes=99 * GB, most=most)
    assert said.endswith(f"; {why}") and size in (8, 16)


def test_stepping_down_ends_at_one_row():
    assert [micro_batch_search.step_down(8), micro_batch_search.step_down(3)] == [4, 1]
    with pytest.raises(micro_batch_search.OutOfMemoryError, match="max_seq_length"):
        micro_batch_search.step_down(1)
