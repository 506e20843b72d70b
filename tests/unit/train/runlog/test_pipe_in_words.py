"""Which machine computes which part of a pipe's rows."""

from hypothesis import given
from hypothesis import strategies as st

from train.runlog.events import progress_line
from train.runlog.pipe_in_words import behind, parts_of

CUTS = st.lists(
    st.tuples(st.integers(0, 9), st.lists(st.integers(1, 7), min_size=1, max_size=4)), min_size=1, max_size=4
)


@given(CUTS)
def test_every_machine_of_every_pipe_has_its_part_and_together_all_of_the_rows(pipes):
    nodes, whole = {"alone": {"rows": 2}}, {}
    for number, (rows, counts) in enumerate(pipes):
        first = 0
        for place, count in enumerate(counts):
            name = f"n{number}-{place}"
            nodes[name] = {"rows": rows if not place else 0, "layers": [first, first + count]}
            whole[name] = (f"n{number}-0", rows, sum(counts))
            first += count
    parts = parts_of({"nodes": nodes})
    assert {name: (part.begins, part.rows, part.layers) for name, part in parts.items()} == whole
    assert behind({"nodes": nodes}).keys() == {name for name in whole if not name.endswith("-0")}
    assert round(sum(part.work for part in parts.values()), 6) == sum(rows for rows, _ in pipes)


def test_a_step_without_pipes_has_no_parts():
    assert parts_of({"nodes": {"a": {"rows": 3}, "b": {"rows": 0}}}) == parts_of({}) == {}


def test_a_trainer_says_which_layers_its_machine_computes_counted_from_one():
    nodes = {"a": {"rows": 4, "layers": [0, 3]}, "b": {"rows": 0, "layers": [3, 5]}, "c": {"rows": 0, "layers": [5, 6]}}
    event = {"step": 1, "loss": 2.0, "step_s": 1.0, "tokens": 99, "nodes": nodes}
    assert "  a 4  b layers 4-5  c layer 6  " in progress_line(event, 4, 9.0)
