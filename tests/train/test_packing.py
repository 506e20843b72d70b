"""Packing over all inputs: nothing is lost, no row overflows, the same samples make the same rows."""

from hypothesis import given
from hypothesis import strategies as st

from train.data.packing import OPEN_ROWS, Packer

LENGTHS = st.lists(st.integers(1, 32), max_size=400)


def rows_of(lengths, pack=True):
    packer = Packer(32, pack)
    rows, open_at_most = [], 0
    for number, length in enumerate(lengths):
        rows += packer.add(([number] * length, [1] * length))
        open_at_most = max(open_at_most, len(packer.open))
    rows += packer.finish()
    assert open_at_most <= OPEN_ROWS  # what is held in memory does not grow with the data
    return [[sample[0] for sample in row] for row in rows]


@given(LENGTHS)
def test_every_sample_is_in_one_row_and_no_row_overflows(lengths):
    rows = rows_of(lengths)
    assert sorted(sample[0] for row in rows for sample in row) == list(range(len(lengths)))
    assert all(len(sample) == lengths[sample[0]] for row in rows for sample in row)
    assert all(0 < sum(map(len, row)) <= 32 for row in rows)
    assert rows == rows_of(lengths)


@given(LENGTHS)
def test_without_packing_each_row_is_one_sample_in_order(lengths):
    assert [[sample[0] for sample in row] for row in rows_of(lengths, pack=False)] == [[n] for n in range(len(lengths))]


@given(st.lists(st.integers(1, 32), min_size=OPEN_ROWS, max_size=400))
def test_packing_is_close_to_the_best(lengths):
    """Best fit never needs twice the rows that the tokens fill."""
    assert len(rows_of(lengths)) <= 2 * (sum(lengths) // 32 + 1)
