"""The live page's machines that hold a model together."""

from console.dashboard.feed import Feed
from console.dashboard.pages import machine
from tests.support.run_files import start, step


def test_the_second_machine_of_a_pipe_shows_its_layers_and_its_part_of_the_work() -> None:
    feed = Feed([], {})
    event = step(100.0, 1, {"a": 6, "b": 0, "c": 2}, 2.0)
    event["nodes"]["a"] |= {"layers": [0, 6], "compute_s": 2.0}
    event["nodes"]["b"] |= {"layers": [6, 24], "compute_s": 3.0}
    for one in (start(99.0, 0, ["a", "b", "c"], 10), event):
        feed.take(one)
    shown = {name: machine(feed, name, place) for place, name in enumerate("abc")}
    assert {name: one["rows"] for name, one in shown.items()} == {
        "a": "6 of 8 rows, layers 1-6 of 24",
        "b": "layers 7-24 of 24 of a's rows",
        "c": "2 of 8 rows",
    }
    assert [one["share"] for one in shown.values()] == [19, 56, 25], "of all rows through all layers"
    assert [shown[name]["speed"] for name in "ab"] == ["3.0 rows/s", "2.0 rows/s"]
