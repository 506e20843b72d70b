"""What a person reads of a run, from event logs that real runs have written (tests/unit/console/event_logs)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from console.text_layout import progress_bar
from console.watch.run_in_words import NEXT, RunView, rates
from train.runlog.state import Event, RunState, time_of

LOGS = Path(__file__).parents[1] / "event_logs"
NODES = ["gpu-master", "gpu-worker-1", "gpu-worker-2"]


def recorded(name: str) -> list[Event]:
    texts = [(LOGS / f"{name}.{file}.jsonl").read_text() for file in ("events", "members")]
    return sorted((json.loads(line) for text in texts for line in text.splitlines()), key=time_of)


def shown(view: RunView, *log: Event, node: str = "gpu-master") -> list[str]:
    """What a trainer wrote, and what an agent did."""
    return [line for event in log for line in view.take(node, "member" if "epoch" in event else "event", event)]


def step(number: int, time: float, **rows: int) -> Event:
    nodes = {name: {"rows": count, "gpu_gb": 0} for name, count in (rows or {"a": 4, "b": 4}).items()}
    return {"event": "step", "time": time, "step": number, "loss": 3.0, "tokens": 512, "step_s": 2.0, "nodes": nodes}


def start(number: int, time: float, *nodes: str) -> Event:
    return {"event": "start", "time": time, "step": number, "total_steps": 40, "nodes": list(nodes)}


def member(kind: str, time: float, *nodes: str, reason: str = "", **more: Any) -> Event:
    facts = {"event": kind, "time": time, "epoch": 2, "step": 8, "nodes": list(nodes), "reason": reason}
    return facts | more


SEVEN_STEPS = [step(number, 100.0 + number) for number in range(1, 8)]


def view_of(order: list[str], run: str = "r", since: dict[str, float] | None = None, **state: Any) -> RunView:
    return RunView(RunState(run=run, **state), order, since or {})


def test_a_node_is_lost_and_comes_back() -> None:
    view = view_of(NODES, "second")
    assert shown(view, *recorded("lost-and-back")) == [
        "⚡ gpu-worker-2 lost at step 4 · it and another member do not hear each other",
        "⚡ gpu-worker-1 lost at step 4 · silent",
        "✓ training again with 2 of 3 at step 5 after 59 s · no steps repeated",
        "✓ gpu-worker-1 back · 3 of 3 at step 16 after 77 s · no steps repeated",
        "held-out loss 6.8394 after step 40 (best so far)",
    ]
    assert view.ended and view.ended.ok and view.ended.shown == (f"done · 40 steps · loss 6.8249   {NEXT}",)
    assert view.state.proven == NODES


def test_a_run_by_rewards_shows_the_reward_and_no_loss() -> None:
    step = {"step_s": 2.0, "loss": -0.003, "tokens": 80, "nodes": {"a": {"rows": 8}}}
    assert rates(step)[0] == "loss -0.0030"
    assert rates(step | {"rollout": {"reward": 0.25}})[0] == "reward 0.2500"


def test_before_the_first_step_it_shows_what_a_node_does_and_for_how_long() -> None:
    view = view_of(["a", "b"], since={"a": 100.0})
    ready = {"on": True, "now": {"time": 101.0, "state": "starting", "reason": "all are ready"}}
    view.take("a", "now", ready)
    assert view.line(waited_s=5) == "starting: all are ready · 5 s"
    old = {"event": "doing", "time": 99.0, "node": "a", "what": "vLLM loads the model"}
    shown(view, old, node="a")
    assert view.line(waited_s=5) == "starting: all are ready · 5 s", "of an earlier launch"
    shown(view, old | {"time": 102.0})
    view.take("a", "now", {"on": True, "now": ready["now"] | {"time": 142.0}})
    assert view.line(waited_s=5) == "a: vLLM loads the model · 40 s"
    shown(view, old | {"time": 142.5, "what": "vLLM is ready, other nodes are not yet"})
    assert view.live(80, 50) == ["a: vLLM is ready, other nodes are not yet · 0 s"]
    start = {"event": "start", "time": 150.0, "step": 0, "run": "r", "total_steps": 5, "nodes": ["a", "b"]}
    shown(view, start)
    assert view.line(waited_s=51) == "starting: all are ready · 51 s"


INFINITE = {"event": "eval", "step": 5, "loss": None, "best": False, "metrics": {"on notes": None}}
"""The log has null for it: JSON has no Infinity."""
REWARD = {"event": "eval", "loss": -0.25, "targets": 9, "best": True, "metrics": {"reward": 0.25}}
WROTE = [{"given": "The sea", "wrote": " was\ncalm and"}, {"given": "A dog", "wrote": ""}]
RECORDED = {"event": "profile", "step": 23, "first": 20, "bytes": 9, "seconds": 0.1}


@pytest.mark.parametrize(
    ("event", "lines"),
    [
        (INFINITE, ["held-out loss infinite · on notes infinite after step 5"]),
        (REWARD | {"step": 0}, ["held-out reward 0.2500 before the first step"]),
        (REWARD | {"step": 5}, ["held-out reward 0.2500 after step 5 (best so far)"]),
        (RECORDED, ["steps 20-23 recorded on every node: ./motley fetch brings the trace"]),
        ({"event": "samples", "step": 100, "lines": WROTE}, ["  The sea ▸ was calm and", "  A dog ▸ "]),
    ],
)
def test_what_each_node_tells_is_shown_once(event: Event, lines: list[str]) -> None:
    view = view_of(["a", "b"])
    assert shown(view, event | {"time": 5.0}) == lines
    assert shown(view, event | {"time": 5.2}, node="b") == []
    assert shown(view, event | {"time": 9.0, "step": event["step"] + 100}) != []


def test_what_is_proven_before_the_first_step_is_no_step() -> None:
    view = view_of(["a"], members=["a"])
    proof = {"event": "proof", "time": 1.0, "step": 0, "adapter": "7"}
    shown(view, proof)
    assert view.state.proven == []
    shown(view, proof | {"step": 1, "time": 2.0})
    assert view.state.proven == ["a"]


def test_which_nodes_a_job_has_its_agents_say() -> None:
    view = view_of(["login"])
    up = {"event": "up", "time": 1.0, "node": "a", "epoch": 0, "step": 0, "host": "", "nodes": ["a", "b"], "reason": ""}
    shown(view, up)
    assert view.order == ["a", "b"]
    shown(view, up | {"node": "b", "nodes": ["b", "a"]})
    assert view.order == ["a", "b"], "once"


def test_reading_it_again_from_another_node_shows_nothing_twice() -> None:
    log = recorded("lost-and-back")
    half = [event for event in log if event["time"] < log[-1]["time"] - 30]
    view = view_of(NODES, "second")
    shown(view, *half)
    assert shown(view, *half, node="gpu-worker-2") == []
    assert view.state.step > 16 and view.ended is None


def test_an_earlier_part_of_the_run_is_not_shown_as_news() -> None:
    log = recorded("lost-and-back")
    view = view_of(NODES, "second", since={"gpu-master": log[-1]["time"] + 1})
    assert shown(view, *log) == []
    assert view.ended is None and view.state.proven == [] and view.line(waited_s=2) == "starting · 2 s"


def test_steps_trained_again_are_counted() -> None:
    view = view_of(NODES)
    lost = member("lost", 108.0, "b", step=7, how={"b": "silent"}, why={"b": "silent"})
    lines = shown(view, *SEVEN_STEPS, lost, start(5, 118.0), step(6, 120.0))
    assert lines[-1] == "✓ training again with 2 of 3 at step 6 after 13 s · 2 steps repeated"


def test_the_last_step_of_the_old_group_is_no_recovery() -> None:
    """A node that can take part is announced while the others are in the middle of a step."""
    view = view_of(["a", "b", "c"])
    assert shown(view, *SEVEN_STEPS, member("joined", 107.5, "c"), step(8, 108.0), start(8, 115.0)) == []
    lines = shown(view, step(9, 120.0, a=3, b=3, c=2))
    assert lines == ["✓ c back · 3 of 3 at step 9 after 12 s · no steps repeated"]


@pytest.mark.parametrize("width", [79, 60, 40])
def test_a_narrow_terminal_shows_every_machine(width: int) -> None:
    """In the order of the launch, whatever their ranks are."""
    names = ["gpu-master", *(f"gpu-worker-{number}" for number in range(1, 5))]
    view = view_of(names)
    shown(view, step(7, 107.0, **dict.fromkeys(reversed(names), 10)))
    first, *others = view.live(width)
    assert first.startswith("step 7/") and "eta" in first and all(len(line) <= width for line in [first, *others])
    assert " · ".join(others) == " · ".join(f"{name} 10" for name in names)
    assert len(others) == (2 if width > 40 else 3)


def test_a_wide_terminal_has_one_line_and_a_start_no_machines() -> None:
    view = view_of(["a", "b"])
    assert view.live(79, 3) == ["starting · 3 s"]
    shown(view, step(7, 107.0, a=3, b=2))
    assert view.live(150) == [view.line(bar=True)] and view.live(90) == [view.line()]
    assert "tok/s" in view.live(90)[0]


def test_what_another_node_noticed_long_ago_is_no_news_and_no_failure() -> None:
    view = view_of(["a", "b"])
    shown(view, *SEVEN_STEPS)
    failed = {"event": "failed", "time": 103.0, "step": 3, "node": "b", "message": "connection reset by peer"}
    assert shown(view, failed, member("lost", 103.0, "c"), member("joined", 104.0, "c"), node="b") == []
    assert not view.state.failure and not view.state.gap
    shown(view, failed | {"time": 109.0}, step(8, 112.0))
    assert not view.state.failure, "it trains on after it"
    assert shown(view, member("failed", 113.0, "b", reason="lost contact", whose="peer")) == []


def test_the_live_line() -> None:
    view = view_of(["a", "b"], total=40)
    assert view.line(waited_s=3) == "starting · 3 s"
    shown(view, step(10, 1.0))
    assert view.line() == "step 10/40  loss 3.0000  4.0 rows/s  256 tok/s  eta 0:01:00  a 4  b 4"
    shown(view, step(11, 3.0) | {"tokens": 8})
    assert "4.0 rows/s  eta" in view.line(), "pictures have no tokens"
    shown(view, step(12, 5.0))
    view.state.last["nodes"]["a"]["gpu_gb"] = 11.24
    view.gpus["a"] = [{"temperature.gpu": "71"}]
    assert "a 4 (11.2 GB, 71 °C)  b 4" in view.line()
    assert progress_bar(0.5) == "━" * 12 + "─" * 12 and len(progress_bar(2.0)) == 24


def test_the_live_line_says_for_what_a_run_waits() -> None:
    view = view_of(["a", "b"], total=40)
    shown(view, step(10, 1.0))
    shown(view, member("waiting", 2.0, reason="job 7 is pending: Resources"))
    assert view.line().endswith("  (waiting: job 7 is pending: Resources)")


def test_a_node_that_is_not_heard_after_the_start_is_shown_once_with_the_fix() -> None:
    view = view_of(["a", "b", "c"], since={"a": 100.0})
    silent, absent = "does not answer", "its machine answers, but no agent runs on it"
    peers = {
        name: {"answers": False, "how": how, "machine": how == absent} for name, how in (("b", silent), ("c", absent))
    }

    def at(seconds: float) -> list[str]:
        facts = {"time": seconds, "state": "waiting", "reason": "waiting up to 60 s for b, c", "peers": peers}
        return view.take("a", "now", {"on": True, "now": facts})

    assert at(104.0) == []
    assert at(109.0) == [
        "! a gets no answer from b: off, or its ports are closed (./motley bootstrap --phase firewall)",
        f"! a does not reach c: {absent}   see: ./motley logs --nodes c",
    ]
    assert at(110.0) == []
    view = view_of(["a", "b", "c"], since={"a": 100.0}, last=step(3, 108.0))
    assert at(111.0) == []  # who is lost while it trains is in the event logs


def test_a_job_that_stood_in_a_queue_has_begun_when_its_agents_have() -> None:
    """By then it was launched long ago, and the agents of its other nodes begin a moment later."""
    view = view_of(["b"], since={"login": 100.0})
    peers = {"b": {"answers": False, "how": "no agent runs on it", "machine": True}}
    facts = {"time": 901.0, "since": 900.0, "state": "waiting", "reason": "waiting up to 60 s for b", "peers": peers}
    assert view.take("login", "now", {"on": True, "now": facts}) == []
    assert view.take("login", "now", {"on": True, "now": facts | {"time": 909.0}}) != []


def test_a_failure_is_told_in_the_trainers_words() -> None:
    view = view_of(NODES)
    message = "the loss is nan\nfix: lower it"
    failed = {"event": "failed", "time": 5.0, "step": 8, "node": "gpu-worker-1", "message": message}
    shown(view, failed, member("ended", 6.0, reason="gpu-worker-1: something", done=False))
    assert view.ended and not view.ended.ok
    assert view.ended.lines == ("run r failed on gpu-worker-1 in step 8: the loss is nan", "fix: lower it")


def test_a_machine_that_somebody_needs_is_not_a_loss() -> None:
    view = view_of(["a", "b"])
    facts = {"how": {"b": "away"}, "why": {"b": "paused until 18:00"}}
    own = member("away", 2.5, "b", reason="paused until 18:00", node="b")
    log = [start(0, 1.0, "a", "b"), step(1, 2.0, a=5, b=3), own, member("lost", 3.0, "b", **facts)]
    lines = shown(view, *log, step(2, 4.0, a=8), step(3, 6.0, a=8))
    assert lines == ["⏸ b steps aside at step 8 · paused until 18:00"]
    assert view.state.away["b"]["reason"] == "paused until 18:00"
    shown(view, member("back", 5.0, "b", node="b"))
    assert view.state.away == {}


def test_shares_that_move_and_stay_are_told_once() -> None:
    view = view_of(["a", "b"])
    trembling = [step(number, float(number), a=10 + number % 5 - 2, b=10 - number % 5 + 2) for number in range(1, 40)]
    assert shown(view, *trembling) == []
    moved = [step(number, float(number), a=16, b=4) for number in range(40, 80)]
    lines = shown(view, *moved)
    assert lines == ["shares at step 50: a 10 → 16, b 10 → 4"]
