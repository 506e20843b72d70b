"""How long a run still takes is one answer, whoever shows it."""

import io
import re

import pytest

from console.watch.run_in_words import RunView
from train.runlog.events import ProgressLine
from train.runlog.state import Event, RunState, replay
from train.runlog.time_left import StepTime


def test_a_step_that_is_slow_by_chance_moves_it_little():
    step_time = StepTime()
    for took_s in [1.0] * 20 + [11.0]:
        step_time.add(took_s)
    assert step_time.left_s(21, 121) == pytest.approx(200)
    assert step_time.left_s(130, 121) == 0


def step(number: int, took_s: float) -> Event:
    nodes = {"a": {"rows": 4, "gpu_gb": 0}}
    own = {"step": number, "loss": 3.0, "tokens": 512, "step_s": took_s, "nodes": nodes}
    return {"event": "step", "time": 100.0 + 2 * number, **own}


def test_the_terminal_of_a_node_and_of_the_controller_and_the_state_say_the_same():
    steps = [step(number, 11.0 if number == 9 else 1.0) for number in range(1, 10)]
    start = {"event": "start", "time": 100.0, "run": "qa", "step": 0, "total_steps": 40, "nodes": ["a"]}
    view, out = RunView(RunState(), ["a"]), io.StringIO()
    line = ProgressLine(out, 40, every_s=0)
    for event in [start, *steps]:
        view.take("a", "event", event)
    for event in steps:
        line.show(event)
    state = replay([start, *steps])[0]
    assert state.left_s == pytest.approx(31 * 2.0)
    here, there = (re.search(r"(?:eta|left) ([\d:]+)", said) for said in (view.line(), out.getvalue().splitlines()[-1]))
    assert here and there and here[1] == there[1] == "0:01:02"
