"""Shares follow the machines on real hosts: by what they computed, read from the run's own event log.

One run of four processes (two on the head, as with two cards) over three hosts that become unequal while it trains, one
of which is throttled later and recovers. The steps are counted, not the seconds of a busy machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from lab.lab import Lab
from tests.support import torchrun

ROWS, STEPS, WITHIN = 24, 46, 10
UNEQUAL, THROTTLED, FIXED = 6, 18, 30
SHARES = {"gpu-master": 60, "gpu-worker-1": 30, "gpu-worker-2": 15}
Steps = list[dict[str, Any]]
pytestmark = [  # quotas promise a share of what there is; test_run_life.py has a node that throttles
    pytest.mark.alone,
    pytest.mark.long,
]


@pytest.fixture(scope="module")
def run(lab_allowed: None) -> Iterator[tuple[Steps, Steps, dict[str, int]]]:
    with torchrun.lab_for_training(f"t{os.getpid()}") as lab:
        yield _run(lab)


def _run(lab: Lab) -> tuple[Steps, Steps, dict[str, int]]:
    now = torchrun.train(
        "moving", lab.hosts, processes={"gpu-master": 2}, rows_per_step=ROWS, max_steps=STEPS, micro_batch=2
    )
    at = {}
    for what, step, percent in (
        ("unequal", UNEQUAL, SHARES),
        ("throttled", THROTTLED, SHARES | {"gpu-worker-1": 8}),
        ("fixed", FIXED, SHARES),
    ):
        at[what] = now.wait_for_step(step)
        torchrun.quotas(lab.hosts, on=True, percent=percent)
    now.wait_for_step(STEPS)
    torchrun.quotas(lab.hosts, on=False)
    now.end()
    return now.events("step"), now.events("balance"), at


def rows(steps: Steps, node: str) -> list[int]:
    """Of all its processes, by step."""
    return [sum(facts["rows"] for name, facts in s["nodes"].items() if name.split(":")[0] == node) for s in steps]


def test_each_process_is_known_by_its_own_name(run: tuple[Steps, Steps, dict[str, int]]) -> None:
    steps, told, _ = run
    names = ["gpu-master:0", "gpu-master:1", "gpu-worker-1", "gpu-worker-2"]
    assert list(steps[0]["nodes"]) == names
    assert all(list(event["shares"]) == list(event["speeds"]) == names for event in told)
    assert all(sum(event["shares"].values()) == ROWS and event["reason"] for event in told)


def test_shares_follow_unequal_machines_within_ten_steps(run: tuple[Steps, Steps, dict[str, int]]) -> None:
    steps, _, at = run
    later = steps[at["unequal"] + WITHIN : at["throttled"]]
    assert rows(later, "gpu-master")[0] > rows(later, "gpu-worker-1")[0] > rows(later, "gpu-worker-2")[0]


def test_a_throttled_machine_and_its_recovery_are_followed_within_ten_steps(
    run: tuple[Steps, Steps, dict[str, int]],
) -> None:
    steps, told, at = run
    before, slow, after = (
        rows(steps, "gpu-worker-1")[at[what] + more - 1]
        for what, more in (("throttled", 0), ("throttled", 1 + WITHIN), ("fixed", 1 + WITHIN))
    )
    assert slow <= before / 2 and after >= 1.5 * slow
    reasons = " ".join(event["reason"] for event in told if event["step"] > at["throttled"])
    assert "gpu-worker-1 slowed from" in reasons and "gpu-worker-1 sped up from" in reasons
