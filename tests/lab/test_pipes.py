"""A model cut over three machines: each of them is lost, the others go on, and the curve is that of one machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from lab import faults
from tests.support.training import Training, training_on

HEAD, FIRST, SECOND = "gpu-master", "gpu-worker-1", "gpu-worker-2"
LOST_S, BACK_S, BEGUN_S = 60, 90, 240
HOLDS = {HEAD: 2, FIRST: 3, SECOND: 2}
"""Of four layers: any two are enough."""
PIPES = {"pipes": f"{HEAD}+{FIRST}+{SECOND}", "micro_batch": 2}


@pytest.fixture(scope="module")
def machines(lab_allowed: None) -> Iterator[Training]:
    with training_on(f"p{os.getpid()}") as machines:
        yield machines


def holding(holds: dict[str, int]) -> dict[str, object]:
    return {"pipe": {"layers": 4, "layer_bytes": 10**9, "holds": holds}}


@pytest.mark.long
def test_any_stage_may_lose_its_power_or_its_cable(machines: Training) -> None:
    run, began = machines, time.time()
    run.launch("cut", max_steps=100000, more=holding(HOLDS), **PIPES)
    run.together(*run.names, since=began, within_s=BEGUN_S)
    for fault, victim in (("power-cut", SECOND), ("cable-pull", FIRST), ("power-cut", HEAD)):
        rest = [name for name in run.names if name != victim]
        began = time.time()
        faults.inject(run.lab, run.host(victim), fault)
        lost_s = run.together(*rest, since=began, within_s=LOST_S)
        assert run.repeated(rest[0], began) <= 1, "more than the step under way was lost"
        stages = run.last_step(rest[0])["nodes"]
        assert sorted(node["layers"][1] - node["layers"][0] for node in stages.values()) in ([1, 3], [2, 2])
        faults.fix(run.lab, run.host(victim), fault)
        run.host(victim).wait_until_up()
        back = time.time()
        print(
            f"{fault} {victim}: lost {lost_s:.1f} s, back {run.together(*run.names, since=back, within_s=BACK_S):.1f} s"
        )
    run.stop()
    found = run.proof()
    assert found["whole"] and found["rows"], "a step or rows were lost or trained twice"
    assert found["error"] < 1e-4 and found["worlds"] == [2, 3], found


@pytest.mark.long
def test_too_little_memory_left_waits_and_continues_by_itself(machines: Training) -> None:
    run, began = machines, time.time()
    run.launch("small", max_steps=100000, more=holding({HEAD: 3, FIRST: 1, SECOND: 1}), **PIPES)
    run.together(*run.names, since=began, within_s=BEGUN_S)
    faults.inject(run.lab, run.host(HEAD), "power-cut")
    why = f"{FIRST} and {SECOND} hold 2 of 4 layers: 2.0 GB are missing, waiting for {HEAD}"
    for name in (FIRST, SECOND):
        run.wait(lambda name=name: run.now(name).get("reason") == why, LOST_S, f"{name} does not wait")
    faults.fix(run.lab, run.host(HEAD), "power-cut")
    run.host(HEAD).wait_until_up()
    run.together(*run.names, since=time.time(), within_s=BACK_S)
    run.stop()
