"""Which of a run's changes are worth a message, and when."""

from __future__ import annotations

from typing import Any

from console.run_in_words import RunView
from train.runlog.notices import LOST_S, MAJORITY_S
from train.runlog.state import RunState

STEP = {"event": "step", "time": 100.0, "step": 7, "loss": 3.0, "tokens": 9, "step_s": 1.0, "nodes": {"a": {"rows": 4}}}


def member(event: str, time: float, number: int = 2, nodes: tuple[str, ...] = (), **facts: Any) -> dict[str, Any]:
    return {"event": event, "time": time, "epoch": number, "step": 7, "host": "a", "nodes": nodes, "reason": ""} | facts


def view() -> RunView:
    found = RunView(RunState(run="r", members=["a", "b", "c"]), ["a", "b", "c"])
    found.take("a", "event", STEP)
    return found


def keys(found: RunView, at: float) -> list[str]:
    return [notice.key for notice in found.due(at)]


def test_a_machine_is_lost_after_ten_minutes() -> None:
    seen = view()
    seen.take(
        "a",
        "member",
        member("lost", 101.0, nodes=("c",), reason="lost c (silent)", how={"c": "silent"}, why={"c": "silent"}),
    )
    assert keys(seen, 100.0 + LOST_S) == []
    assert keys(seen, 102.0 + LOST_S) == keys(seen, 900.0 + LOST_S) == ["lost-2-c"]
    assert seen.due(101.0 + LOST_S)[0].text == "c is lost since 10 minutes: silent"
    seen.take("a", "member", member("joined", 800.0, 3, nodes=("c",)))
    assert keys(seen, 900.0 + LOST_S) == []


def test_waiting_for_a_majority_is_told_when_it_lasts() -> None:
    seen = view()
    reason = "no answer from b, c; 1 of 3 are no majority, waiting"
    seen.take("a", "member", member("waiting", 101.0, reason="its workers are tried again", too_few=False))
    assert keys(seen, 900.0) == []
    seen.take("a", "member", member("waiting", 101.0, reason=reason, too_few=True))
    assert keys(seen, 110.0) == []
    assert keys(seen, 102.0 + MAJORITY_S) == ["waiting-2"]
    seen.take("a", "event", STEP | {"step": 8, "time": 400.0})
    assert keys(seen, 900.0) == []


def test_the_end_is_told_and_a_stop_is_not() -> None:
    seen = view()
    assert seen.last_notice() == []
    seen.ended = seen.stopped("")
    assert seen.last_notice() == []
    seen.take("a", "member", member("ended", 110.0, 4, done=True, reason="all 7 steps are trained"))
    (done,) = seen.last_notice()
    assert (done.key, done.title, done.text) == ("done-4", "r: done", "done · 7 steps · loss 3.0000")
    failed = view()
    failed.take("a", "now", {"on": False, "now": {"state": "failed", "reason": "b: out of memory", "epoch": 5}})
    (notice,) = failed.last_notice()
    assert (notice.key, notice.text) == ("failed-5", "run r failed: b: out of memory")
