"""Training by rewards while machines go and come back: the same answers, rewards and steps as one process has."""

import os
import random
import signal

import pytest

from tests.train import reference, rewarded
from tests.train.agents import Agents

AGAIN = {"steps_per_rollout": 2, "epsilon": 0.1, "epsilon_high": 0.2}
STEPS, ROWS = 20, reference.OPTIONS["rows_per_step"]
OPTIONS = reference.OPTIONS | AGAIN | {"recipe": "grpo", "max_steps": STEPS, "save_every": 100000}
OPTIONS |= {"group": 4, "max_new_tokens": 10, "max_seq_length": 96}
PROGRAM = "tests/train/broken.py moving_shares+pretended_speed=1"
"""Other shares at every step, and slow enough for machines to be lost between two."""
LOSSES = 30
HORIZON = 150
"""Steps that can be compared: rounding grows. One process whose weights are changed by their last bit after each step
is as far from itself at the same steps: 1e-5 of the norm at 150, 5e-3 at 205."""


@pytest.fixture
def agents(tmp_path):
    data = rewarded.make_data(tmp_path / "data")
    return Agents(tmp_path, OPTIONS | {"dataset": data, "rewards": tmp_path / "data/rewards.py"})


def truth(agents, steps, of_steps):
    how = {"reuse": AGAIN["steps_per_rollout"], "low": AGAIN["epsilon"], "high": AGAIN["epsilon_high"]}
    return rewarded.train(agents.options["dataset"], steps=steps, of_steps=of_steps, **how)[0]


def assert_is_truth(agents, found, last=0):
    """Each log is in order, and together they have each step up to `last` once: who joins later has no earlier ones."""
    steps = {}
    for name in agents.names:
        own = agents.steps(name)
        numbers = [step["step"] for step in own]
        assert numbers == sorted({*numbers}), f"{name}: {numbers}"
        for step in own:
            seen = steps.setdefault(step["step"], step)
            assert step["rollout"]["reward"] == seen["rollout"]["reward"], f"{name}, step {step['step']}"
    assert sorted(steps) == list(range(1, (last or len(found)) + 1))
    for number, one in enumerate(found, 1):
        step = steps[number]
        assert step["rollout"]["answers_crc"] == one["answers"], f"step {number}"
        assert step["rollout"]["reward"] == pytest.approx(one["reward"], abs=1e-12)
        assert step["loss"] == pytest.approx(one["loss"], abs=1e-6), f"step {number}"
        assert step["grad_norm"] == pytest.approx(one["norm"], rel=2e-5)
        assert step["rollout"]["clipped"] == pytest.approx(one["clipped"], abs=1e-12)
        made = [sum(steps[at]["rollout"]["made"].values()) for at in rollout_of(number) if at in steps]
        assert sorted(made)[-1] in (0, ROWS) and sum(made) <= ROWS, f"step {number}: answers made twice"


def rollout_of(number):
    """The steps on the same answers."""
    every = AGAIN["steps_per_rollout"]
    first = (number - 1) // every * every + 1
    return range(first, first + every)


def test_three_machines_then_two_then_three_are_one_process(agents):
    agents.start(program=PROGRAM)
    agents.together(*agents.names, within_s=90, step=2)
    agents.kill(agents.names[2])
    agents.together(*agents.names[:2], within_s=60)
    agents.start(agents.names[2], program=PROGRAM)
    agents.together(*agents.names, within_s=60)
    assert agents.ended() == [0, 0, 0]
    assert_is_truth(agents, truth(agents, STEPS, STEPS))
    assert len({tuple(step["shares"]) for step in agents.steps(agents.names[0])}) > 3


def aborts(agents, victim):
    """A worker ends at once; its agent starts another."""
    (worker,) = agents.workers(victim)
    os.kill(worker, signal.SIGABRT)


def goes_and_comes_back(agents, victim):
    agents.kill(victim)
    agents.together(*(name for name in agents.names if name != victim), within_s=90)
    agents.start(victim, program=PROGRAM)


@pytest.mark.long
def test_a_storm_of_losses_changes_nothing(agents):
    chosen = random.Random(11)
    agents.options |= {"max_steps": 100000}
    agents.start(program=PROGRAM)
    agents.together(*agents.names, within_s=90)
    for _ in range(LOSSES):
        chosen.choice([aborts, aborts, goes_and_comes_back])(agents, chosen.choice(agents.names))
        last = agents.last_step(agents.names[0])["step"]
        agents.together(*agents.names, within_s=120, step=last + chosen.randint(0, 2))
    agents.stop(within_s=30)
    steps = max(step["step"] for name in agents.names for step in agents.steps(name))
    assert_is_truth(agents, truth(agents, min(steps, HORIZON), 100000), steps)
