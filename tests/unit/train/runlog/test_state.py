"""The state of a run from the event logs of several nodes, each with its own clock and its own gaps."""

from typing import Any

from train.runlog.state import history, replay

Event = dict[str, Any]


def start(time: float, step: int = 0) -> Event:
    return {"event": "start", "time": time, "run": "r", "step": step, "total_steps": 9, "nodes": ["a:0", "a:1", "b"]}


def step(time: float, number: int, loss: float = 3.0) -> Event:
    nodes = {"a:0": {"rows": 1}, "a:1": {"rows": 2}, "b": {"rows": 3}}
    return {"event": "step", "time": time, "step": number, "loss": loss, "step_s": 1.0, "nodes": nodes}


def member(time: float, kind: str, node: str, *nodes: str) -> Event:
    return {"event": kind, "time": time, "epoch": 1, "node": node, "step": 3, "nodes": list(nodes), "reason": ""}


def later(seconds: float, events: list[Event]) -> list[Event]:
    """As a node writes them whose clock is so far ahead."""
    return [event | {"time": event["time"] + seconds} for event in events]


def test_each_thing_is_one_change_whoever_writes_it():
    log = [start(1.0), *(step(1.0 + number, number, 3.0 / number) for number in range(1, 6))]
    state, changes = replay([*log, *later(2.5, log[:4])])
    assert [change.kind for change in changes] == ["start"] + ["step"] * 5
    assert (state.run, state.step, state.total, state.members) == ("r", 5, 9, ["a", "b"])


def test_what_is_trained_again_counts_and_what_lies_behind_a_resume_does_not():
    first = [start(1.0), *(step(1.0 + number, number, 3.0) for number in range(1, 6))]
    again = [start(20.0, 3), step(21.0, 4, 2.0)]
    state, changes = replay([*first, *again, *later(0.3, again)])
    steps = history(change.event for change in changes)
    assert [(event["step"], event["loss"]) for event in steps] == [(1, 3.0), (2, 3.0), (3, 3.0), (4, 2.0)]
    assert state.step == 4


def test_who_is_lost_is_so_until_it_is_back():
    log = [start(1.0), *(step(1.0 + number, number) for number in range(1, 4)), member(5.0, "lost", "a", "b")]
    state, _ = replay(log)
    assert state.lost == {"b": 3} and state.gap and (state.gap.step, state.gap.nodes) == (3, ["a", "b"])
    again = [start(9.0, 3), step(10.0, 4), member(12.0, "joined", "a", "b")]
    state, changes = replay([*log, member(5.2, "lost", "c", "b"), *again])
    assert state.lost == {} and [change.kind for change in changes].count("lost") == 1
    assert [change.gap.step for change in changes if change.gap] == [3]


def test_an_end_is_one_until_training_continues():
    stopped = {"event": "stopped", "time": 3.2, "step": 2, "reason": "SIGTERM"}
    log = [start(1.0), step(2.0, 1), step(3.0, 2), stopped]
    assert replay(log)[0].ending == stopped
    assert replay([*log, start(30.0, 2), step(31.0, 3)])[0].ending is None


def piece(time: float, number: int) -> Event:
    facts = {"step": number, "piece": number, "step_s": 12.0, "nodes": {"a": {"rows": 1}}}
    return {"event": "piece", "time": time, **facts}


def test_a_night_between_two_pieces_is_none_of_the_time_that_one_takes():
    first = [start(1.0), *(piece(1.0 + 10 * number, number) for number in range(1, 4))]
    assert replay([*first, piece(41.0, 4)])[0].step_time.seconds < 12.0
    assert replay([*first, start(30000.0, 3), piece(30012.0, 4)])[0].step_time.seconds <= 12.0
