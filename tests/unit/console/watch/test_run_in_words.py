"""What a person reads of a run, from event logs that real runs have written (tests/unit/console/event_logs)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from console.fetch import disagreeing, fetched_lines, made_in, place_of
from console.run_commands import stop_lines
from console.text_layout import progress_bar
from console.watch.run_in_words import NEXT, RunView, rates
from console.watch.status import gathered, run_lines, status_lines
from train.runlog.state import RunState

LOGS = Path(__file__).parents[1] / "event_logs"
NODES = ["gpu-master", "gpu-worker-1", "gpu-worker-2"]


def recorded(name: str) -> list[tuple[str, dict[str, Any]]]:
    lines = []
    for kind, file in (("event", "events"), ("member", "members")):
        for line in (LOGS / f"{name}.{file}.jsonl").read_text().splitlines():
            lines.append((kind, json.loads(line)))
    return sorted(lines, key=lambda entry: float(entry[1]["time"]))


def shown(view: RunView, log: list[tuple[str, dict[str, Any]]], node: str = "gpu-master") -> list[str]:
    return [line for kind, facts in log for line in view.take(node, kind, facts)]


def view_of(order: list[str], run: str = "r", since: dict[str, float] | None = None, **state: Any) -> RunView:
    return RunView(RunState(run=run, **state), order, since or {})


def test_a_node_is_lost_and_comes_back() -> None:
    view = view_of(NODES, "second")
    assert shown(view, recorded("lost-and-back")) == [
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
    view.take("a", "event", old)
    assert view.line(waited_s=5) == "starting: all are ready · 5 s", "of an earlier launch"
    view.take("a", "event", old | {"time": 102.0})
    view.take("a", "now", {"on": True, "now": ready["now"] | {"time": 142.0}})
    assert view.line(waited_s=5) == "a: vLLM loads the model · 40 s"
    view.take("a", "event", old | {"time": 142.5, "what": "vLLM is ready, other nodes are not yet"})
    assert view.live(80, 50) == ["a: vLLM is ready, other nodes are not yet · 0 s"]
    start = {"event": "start", "time": 150.0, "step": 0, "run": "r", "total_steps": 5, "nodes": ["a", "b"]}
    view.take("a", "event", start)
    assert view.line(waited_s=51) == "starting: all are ready · 51 s"


def test_a_held_out_loss_that_is_infinite_is_said_and_followed_on() -> None:
    """The log has null for it: JSON has no Infinity."""
    event = {"event": "eval", "time": 1.0, "step": 5, "loss": None, "best": False, "metrics": {"on notes": None}}
    assert view_of(["a"]).take("a", "event", event) == ["held-out loss infinite · on notes infinite after step 5"]


def test_what_was_there_before_the_first_step_is_no_best() -> None:
    view = view_of(["a"])
    event = {"event": "eval", "time": 1.0, "loss": -0.25, "targets": 9, "metrics": {"reward": 0.25}}
    assert view.take("a", "event", event | {"step": 0, "best": True}) == [
        "held-out reward 0.2500 before the first step"
    ]
    better = event | {"step": 5, "best": True, "time": 2.0}
    assert view.take("a", "event", better) == ["held-out reward 0.2500 after step 5 (best so far)"]


def test_what_is_proven_before_the_first_step_is_no_step() -> None:
    view = view_of(["a"], members=["a"])
    proof = {"event": "proof", "time": 1.0, "step": 0, "adapter": "7"}
    view.take("a", "event", proof)
    assert view.state.proven == []
    view.take("a", "event", proof | {"step": 1, "time": 2.0})
    assert view.state.proven == ["a"]


def test_which_nodes_a_job_has_its_agents_say() -> None:
    view = view_of(["login"])
    up = {"event": "up", "time": 1.0, "node": "a", "epoch": 0, "step": 0, "host": "", "nodes": ["a", "b"], "reason": ""}
    view.take("login", "member", up)
    assert view.order == ["a", "b"]
    view.take("login", "member", up | {"node": "b", "nodes": ["b", "a"]})
    assert view.order == ["a", "b"], "once"


def test_reading_it_again_from_another_node_shows_nothing_twice() -> None:
    log = recorded("lost-and-back")
    half = [entry for entry in log if entry[1]["time"] < log[-1][1]["time"] - 30]
    view = view_of(NODES, "second")
    shown(view, half)
    assert shown(view, half, "gpu-worker-2") == []
    assert view.state.step > 16 and view.ended is None


def test_an_earlier_part_of_the_run_is_not_shown_as_news() -> None:
    log = recorded("lost-and-back")
    view = view_of(NODES, "second", since={"gpu-master": log[-1][1]["time"] + 1})
    assert shown(view, log) == []
    assert view.ended is None and view.state.proven == [] and view.line(waited_s=2) == "starting · 2 s"


def test_steps_trained_again_are_counted() -> None:
    view = view_of(NODES)
    steps = [("event", step(number, 100.0 + number)) for number in range(1, 8)]
    lost = (
        "member",
        {
            "event": "lost",
            "time": 108.0,
            "epoch": 2,
            "step": 7,
            "nodes": ["b"],
            "reason": "lost b (silent)",
            "how": {"b": "silent"},
            "why": {"b": "silent"},
        },
    )
    lines = shown(view, [*steps, lost, start(5, 118.0), ("event", step(6, 120.0))])
    assert lines[-1] == "✓ training again with 2 of 3 at step 6 after 13 s · 2 steps repeated"


def start(number: int, time: float, *nodes: str) -> tuple[str, dict[str, Any]]:
    return "event", {"event": "start", "time": time, "step": number, "total_steps": 40, "nodes": list(nodes)}


def member(kind: str, time: float, *nodes: str, reason: str = "", epoch: int = 2) -> tuple[str, dict[str, Any]]:
    facts = {"event": kind, "time": time, "epoch": epoch, "step": 8, "nodes": list(nodes), "reason": reason}
    return "member", facts


def test_the_last_step_of_the_old_group_is_no_recovery() -> None:
    """A node that can take part is announced while the others are in the middle of a step."""
    view = view_of(["a", "b", "c"])
    shown(view, [("event", step(number, 100.0 + number)) for number in range(1, 8)])
    lines = shown(view, [member("joined", 107.5, "c"), ("event", step(8, 108.0)), start(8, 115.0)])
    assert lines == []
    lines = shown(view, [("event", step(9, 120.0, a=3, b=3, c=2))])
    assert lines == ["✓ c back · 3 of 3 at step 9 after 12 s · no steps repeated"]


@pytest.mark.parametrize("width", [79, 60, 40])
def test_a_narrow_terminal_shows_every_machine(width: int) -> None:
    """In the order of the launch, whatever their ranks are."""
    names = ["gpu-master", *(f"gpu-worker-{number}" for number in range(1, 5))]
    view = view_of(names)
    shown(view, [("event", step(7, 107.0, **{name: 10 for name in reversed(names)}))])
    first, *others = view.live(width)
    assert first.startswith("step 7/") and "eta" in first and all(len(line) <= width for line in [first, *others])
    assert " · ".join(others) == " · ".join(f"{name} 10" for name in names)
    assert len(others) == (2 if width > 40 else 3)


def test_a_wide_terminal_has_one_line_and_a_start_no_machines() -> None:
    view = view_of(["a", "b"])
    assert view.live(79, 3) == ["starting · 3 s"]
    shown(view, [("event", step(7, 107.0, a=3, b=2))])
    assert view.live(150) == [view.line(bar=True)] and view.live(90) == [view.line()]
    assert "tok/s" in view.live(90)[0]


def test_what_another_node_noticed_long_ago_is_no_news_and_no_failure() -> None:
    view = view_of(["a", "b"])
    shown(view, [("event", step(number, 100.0 + number)) for number in range(1, 8)])
    failed = {"event": "failed", "time": 103.0, "step": 3, "node": "b", "message": "connection reset by peer"}
    assert shown(view, [("event", failed), member("lost", 103.0, "c"), member("joined", 104.0, "c")], "b") == []
    assert not view.state.failure and not view.state.gap
    shown(view, [("event", failed | {"time": 109.0}), ("event", step(8, 112.0))])
    assert not view.state.failure, "it trains on after it"
    assert shown(view, [("member", member("failed", 113.0, "b", reason="lost contact")[1] | {"whose": "peer"})]) == []


def step(number: int, time: float, **rows: int) -> dict[str, Any]:
    nodes = {name: {"rows": count, "gpu_gb": 0} for name, count in (rows or {"a": 4, "b": 4}).items()}
    return {"event": "step", "time": time, "step": number, "loss": 3.0, "tokens": 512, "step_s": 2.0, "nodes": nodes}


def test_the_live_line() -> None:
    view = view_of(["a", "b"], total=40)
    assert view.line(waited_s=3) == "starting · 3 s"
    view.take("a", "event", step(10, 1.0))
    assert (
        view.line()
        == "step 10/40  loss 3.0000  4.0 rows/s  256 tok/s  eta 0:01:00  a 4  b 4  (training)".removesuffix(
            "  (training)"
        )
    )
    view.take("a", "event", step(11, 3.0) | {"tokens": 8})
    assert "4.0 rows/s  eta" in view.line(), "pictures have no tokens"
    view.take("a", "event", step(12, 5.0))
    view.state.last["nodes"]["a"]["gpu_gb"] = 11.24
    view.gpus["a"] = [{"temperature.gpu": "71"}]
    assert "a 4 (11.2 GB, 71 °C)  b 4" in view.line()
    assert progress_bar(0.5) == "━" * 12 + "─" * 12 and len(progress_bar(2.0)) == 24


def test_the_live_line_says_for_what_a_run_waits() -> None:
    view = view_of(["a", "b"], total=40)
    view.take("a", "event", step(10, 1.0))
    view.take("a", "member", member("waiting", 2.0, reason="job 7 is pending: Resources")[1])
    assert view.line().endswith("  (waiting: job 7 is pending: Resources)")


def pipes(*groups: tuple[int, tuple[tuple[str, int, int], ...]]) -> dict[str, Any]:
    """A step over pipes: the rows of each, and its processes with the first and the last layer, counted from 1."""
    found = step(12, 9.0)
    found["nodes"] = {
        name: {"rows": rows * (first == 1), "gpu_gb": 0, "layers": [first - 1, last]}
        for rows, group in groups
        for name, first, last in group
    }
    return found


CUT = pipes((5, (("a", 1, 8), ("b", 9, 23), ("c", 24, 24))))


def test_machines_behind_another_show_their_layers_and_not_that_they_have_no_rows() -> None:
    view = view_of(["a", "b", "c"], total=40)
    view.take("a", "event", CUT)
    assert "a 5  b layers 9-23  c layer 24" in view.line() and "2.5 rows/s" in view.line()
    looks = {name: look(step=CUT) for name in "abc"}
    assert [line.split("  checkpoint")[0] for line in status_lines(["a", "b", "c"], looks, {})[1:]] == [
        "  a  training  5 rows, layers 1-8 of 24",
        "  b  training  layers 9-23 of 24 of a's rows",
        "  c  training  layer 24 of 24 of a's rows",
    ]
    gone = look(step=CUT, now={"state": "away", "reason": "b steps aside", "gpus": []})
    assert "  b  away  b steps aside" in status_lines(["b"], {"b": gone}, {})[1]


def test_each_pipe_has_its_own_rows_and_a_machine_of_two_cards_both_its_parts() -> None:
    event = pipes((5, (("a", 1, 8), ("b:0", 9, 16), ("b:1", 17, 24))), (3, (("c:0", 1, 12), ("c:1", 13, 24))))
    event["nodes"]["d"] = {"rows": 9, "gpu_gb": 0}
    looks = {name: look(step=event) for name in "abcd"}
    assert [line.split("  checkpoint")[0] for line in status_lines([*"abcd"], looks, {})[1:]] == [
        "  a  training  5 rows, layers 1-8 of 24",
        "  b  training  layers 9-24 of 24 of a's rows",
        "  c  training  3 rows, layers 1-24 of 24",
        "  d  training  9 rows",
    ]


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
    failed = {
        "event": "failed",
        "time": 5.0,
        "step": 8,
        "node": "gpu-worker-1",
        "message": "the loss is nan\nfix: lower it",
    }
    ended = {"event": "ended", "time": 6.0, "epoch": 3, "nodes": [], "done": False, "reason": "gpu-worker-1: something"}
    shown(view, [("event", failed), ("member", ended)])
    assert view.ended and not view.ended.ok
    assert view.ended.lines == ("run r failed on gpu-worker-1 in step 8: the loss is nan", "fix: lower it")


def test_a_machine_that_somebody_needs_is_not_a_loss() -> None:
    view = view_of(["a", "b"])
    facts = {"how": {"b": "away"}, "why": {"b": "paused until 18:00"}}
    own = ("member", dict(member("away", 2.5, "b", reason="paused until 18:00")[1], node="b"))
    log = [("event", start(0, 1.0, "a", "b")[1]), ("event", step(1, 2.0, a=5, b=3)), own]
    log += [("member", member("lost", 3.0, "b")[1] | facts), *(("event", step(at, 2.0 * at, a=8)) for at in (2, 3))]
    lines = shown(view, log)
    assert lines == ["⏸ b steps aside at step 8 · paused until 18:00"]
    assert view.state.away["b"]["reason"] == "paused until 18:00"
    shown(view, [("member", dict(member("back", 5.0, "b")[1], node="b"))])
    assert view.state.away == {}


def test_shares_that_move_and_stay_are_told_once() -> None:
    view = view_of(["a", "b"])
    trembling = [step(number, float(number), a=10 + number % 5 - 2, b=10 - number % 5 + 2) for number in range(1, 40)]
    assert shown(view, [("event", event) for event in trembling]) == []
    moved = [step(number, float(number), a=16, b=4) for number in range(40, 80)]
    lines = shown(view, [("event", event) for event in moved])
    assert lines == ["shares at step 50: a 10 → 16, b 10 → 4"]


# -- the tables ------------------------------------------------------------------------------------------------------


def look(**more: Any) -> dict[str, Any]:
    view = {"state": "training", "reason": "", "gpus": []}
    facts = {"on": True, "how": "unit", "run": "r", "now": view, "start": start(0, 1.0)[1], "step": step(12, 9.0)}
    facts |= {"events": [], "members": [], "checkpoint": 10, "free_bytes": 5e9, "gpus": []}
    return facts | more


def test_status_with_a_node_that_is_off() -> None:
    lost = {"event": "lost", "time": 9.0, "epoch": 1, "step": 11, "nodes": ["b"], "reason": "lost b (silent)"}
    lines = status_lines(["a", "b"], {"a": look(members=[lost])}, {"b": "nobody answers at 192.168.1.5"})
    assert lines[:3] == [
        "run r  step 12/40  loss 3.0000  4.0 rows/s  256 tok/s  eta 0:00:56",
        "  a  training  4 rows  checkpoint 10",
        "  b  nobody answers at 192.168.1.5; lost at step 11",
    ]
    assert lines[3].endswith("  lost b (silent)") and "lost  lost" not in lines[3]


def test_status_tells_the_time_left_by_more_than_the_newest_step() -> None:
    slow_once = look(step=step(12, 9.0) | {"step_s": 20.0}, took_s=[2.0] * 20 + [20.0])
    (line, *_) = status_lines(["a"], {"a": slow_once}, {})
    assert "step 12/40" in line and "eta 0:01:46" in line, "28 steps of 3.8 s, not of 20"


def test_status_says_who_steps_aside_and_who_is_paused() -> None:
    view = {"state": "away", "reason": "b steps aside: paused until 18:00", "gpus": []}
    lines = status_lines(["a", "b"], {"a": look(), "b": look(now=view)}, {})
    assert lines[2] == "  b  away  b steps aside: paused until 18:00  checkpoint 10"
    lines = status_lines(["b"], {"b": look(on=False, paused="until unpaused")}, {})
    assert lines[1] == "  b  no run here · paused until unpaused · 5 GB free"


def test_a_machine_that_steps_aside_says_why_and_not_what_all_wait_for() -> None:
    view = {
        "state": "away",
        "aside": {"rule": "in use", "cause": "in use by hl2_linux"},
        "reason": "waiting for a majority (…)",
    }
    lines = status_lines(["a", "b"], {"a": look(), "b": look(now=view)}, {})
    assert any("b  away  in use by hl2_linux" in line for line in lines), lines


def test_status_tells_a_disk_that_is_full() -> None:
    assert status_lines(["a"], {"a": look(free_bytes=30e6)}, {})[1].endswith("checkpoint 10  only 30 MB free")


def test_status_names_the_last_run_and_how_to_go_on() -> None:
    off = look(on=False, events=[{"event": "stopped", "time": 9.5, "step": 12, "reason": "SIGTERM"}])
    assert status_lines(["a"], {"a": off}, {})[0] == (
        "no run is running; the last was r: stopped at step 12 · resume it: ./motley launch --resume r"
    )
    done = look(on=False, events=[{"event": "done", "time": 9.5, "step": 12, "loss": 3.0}])
    assert status_lines(["a"], {"a": done}, {})[0] == "no run is running; the last was r: done at step 12"
    failed = look(on=False, events=[{"event": "failed", "time": 9.5, "step": 13, "message": "disk full\nmore"}])
    assert "r: failed: disk full at step 12 · resume it" in status_lines(["a"], {"a": failed}, {})[0]


def test_status_takes_no_broken_connection_of_a_stop_for_a_failure() -> None:
    """The nodes end one after another; the one that is told last may see the others leave first."""
    stop = look(on=False, events=[{"event": "stopped", "time": 9.5, "step": 12, "reason": "SIGTERM"}])
    broken = {"event": "failed", "time": 9.6, "step": 12, "message": "Connection reset by peer"}
    saw = look(on=False, events=[broken])
    assert "r: stopped at step 12 · resume it" in status_lines(["a", "b"], {"a": stop, "b": saw}, {})[0]
    ended = {
        "event": "ended",
        "time": 9.9,
        "epoch": 3,
        "nodes": [],
        "done": False,
        "reason": "b: Connection reset by peer",
    }
    saw["members"] = [ended]
    assert "r: failed: Connection reset by peer at step 12" in status_lines(["a", "b"], {"a": stop, "b": saw}, {})[0]


def test_status_when_nobody_answers() -> None:
    assert status_lines(["a"], {}, {"a": "off"}) == ["no node answers:", "  a  off"]


def test_stop_names_what_is_left_and_who_was_not_asked() -> None:
    told = {"was_on": True, "run": "r", "checkpoint": 12, "forced": 0, "left": [], "ports": [], "seconds": 1.2}
    lines = stop_lines(
        ["a", "b", "c"], {"a": told, "c": told | {"left": [7], "ports": [29400], "forced": 1}}, {"b": "off"}
    )
    assert lines[0] == "run r stopped at step 12 · resume it: ./motley launch --resume r"
    assert lines[1] == "  a  checkpoint 12 · nothing left · 1.2 s"
    assert lines[2] == "  b  off: not stopped there; if it comes back: ./motley stop"
    assert "still there: process 7 and port 29400; if that stays so, restart this machine · 1 had to" in lines[3]
    ports = told | {"ports": [29400, 29401]}
    pods = told | {"left": ["pod/r-1"], "stuck": "", "program": "kubectl --context=lab"}
    lines = stop_lines(["a", "b"], {"a": ports, "b": pods}, {})
    assert "still there: port 29400, 29401; if" in lines[1], "stop ends with 1 for it"
    assert "still there: pod/r-1; fix: kubectl --context=lab delete pod/r-1 · 1.2 s" in lines[2]


def test_runs_are_gathered_over_the_nodes() -> None:
    facts = {"step": 8, "steps": 40, "loss": 3.0, "time": 5.0, "done": False, "bytes": 1000000, "model": "tiny"}
    answers = {
        "a": {"runs": {"r": facts}, "on": ""},
        "b": {"runs": {"r": facts | {"step": 12, "time": 9.0}}, "on": "r"},
    }
    assert gathered(answers)["r"]["step"] == 12 and gathered(answers)["r"]["bytes"] == 2000000
    table = run_lines(answers, {"c": "off"})
    assert "12/40" in table[1] and " running " in table[1] and "a, b" in table[1] and table[2] == "c  off"


def test_a_run_by_rewards_shows_its_reward() -> None:
    facts = {"step": 8, "steps": 40, "loss": -0.01, "time": 5.0, "done": False, "bytes": 0, "model": "tiny"}
    both = {"runs": {"sums": facts | {"reward": 0.75}, "qa": facts | {"loss": 3.0}}, "on": ""}
    head, *lines = run_lines({"a": both}, {})
    known = dict(line.split(maxsplit=1) for line in lines)
    assert known["sums"].split("  ")[1].strip() == "reward 0.7500" and "-0.01" not in known["sums"]
    assert known["qa"].split()[1] == "3.0000"
    end = head.index("loss") + 4
    assert {line[:end].rstrip()[-4:] for line in lines} == {"7500", "0000"}, "they stand below one another"


def test_an_adapter_that_differs_is_found() -> None:
    files = {"results/r/adapter/x": "1", "logs/runs/r/events.jsonl": "5"}
    other = {"results/r/adapter/x": "2", "logs/runs/r/events.jsonl": "6"}
    assert disagreeing("results/r/adapter/", {"a": files, "b": other}) == ["results/r/adapter/x"]
    assert disagreeing("results/r/adapter/", {"a": files, "b": dict(files)}) == []
    homes = [{**files, "results/r/adapter/adapter_config.json": own} for own in ("1", "2")]
    assert disagreeing("results/r/adapter/", {"a": homes[0], "b": homes[1]}) == [], "it names each node's own folder"


def test_nothing_is_unpacked_outside_the_results() -> None:
    assert place_of("/etc/passwd", "r", "a", results=True) is None
    assert place_of("results/r/../../../x", "r", "a", results=True) is None
    assert place_of("results/r/adapter/x", "r", "a", results=True) == Path("adapter/x")
    assert place_of("results/r/adapter/x", "r", "a", results=False) is None
    assert place_of("logs/runs/r/events.jsonl", "r", "a", results=False) == Path("nodes/a/events.jsonl")


def test_recorded_steps_are_told_once() -> None:
    view = view_of(["a", "b"])
    event = {"event": "profile", "time": 10.0, "step": 23, "first": 20, "bytes": 9, "seconds": 0.1}
    assert view.take("a", "event", event) == ["steps 20-23 recorded on every node: ./motley fetch brings the trace"]
    assert view.take("b", "event", event | {"bytes": 8}) == []


def test_what_a_new_model_wrote_is_shown_once() -> None:
    view = view_of(["a", "b"])
    lines = [{"given": "The sea", "wrote": " was\ncalm and"}, {"given": "A dog", "wrote": ""}]
    event = {"event": "samples", "time": 5.0, "step": 100, "lines": lines}
    assert view.take("a", "event", event) == ["  The sea ▸ was calm and", "  A dog ▸ "]
    assert view.take("b", "event", event | {"time": 5.2}) == []
    assert view.take("a", "event", event | {"time": 9.0, "step": 200}) != []


def test_a_model_is_fetched_as_an_adapter_is() -> None:
    model = {"a": {"logs/runs/r/events.jsonl": "1", "results/r/model/model.safetensors": "2"}, "b": {}}
    assert made_in("r", model) == "model" and made_in("r", {"a": {"results/r/adapter/x": "1"}}) == "adapter"
    assert made_in("r", {"a": {"logs/runs/r/events.jsonl": "1"}}) == "adapter", "nothing is there yet"
    receipt = {"run": "r", "differ": [], "silent": {}}
    lines = fetched_lines(receipt, Path("results/r"), {"a": 3}, ["a", "b"], made="model")
    assert lines[1] == "  model     results/r/model  the same on a, b"
