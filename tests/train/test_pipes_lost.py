"""A stage of a pipe is lost: those that are left cut again and go on, or wait until there is enough memory."""

import os
import signal

import pytest

from tests.train import cluster, reference
from tests.train.agents import Agents

OPTIONS = reference.OPTIONS | {"max_steps": 100000, "rows_per_step": 4, "save_every": 20, "micro_batch": 1}
OPTIONS |= {"schedule": "constant", "warmup_steps": 4}
HOLDS = {"node-0": 3, "node-1": 1, "node-2": 1}
"""Of four layers: two nodes are enough if node-0 is one of them."""


def steps_in_all_logs(agents) -> dict[int, float]:
    """What trained: a step that was under way when a node was lost is trained again."""
    found: dict[int, float] = {}
    for name in agents.names:
        for event in agents.steps(name):
            found.setdefault(event["step"], event["loss"])
    return found


def layers(agents, name) -> dict[str, list[int]]:
    return {node: did["layers"] for node, did in agents.last_step(name)["nodes"].items()}


def test_whatever_stage_is_lost_the_curve_is_that_of_one_process(data, tmp_path):
    agents = Agents(tmp_path, OPTIONS | {"dataset": data, "pipes": "node-0+node-1+node-2"})
    agents.more = {"pipe": {"layers": 4, "layer_bytes": 2 * 10**9, "holds": HOLDS}}
    agents.start()
    agents.together(*agents.names, within_s=90, step=5)
    assert layers(agents, "node-0") == {"node-0": [0, 2], "node-1": [2, 3], "node-2": [3, 4]}

    for pid in agents.workers("node-1"):
        os.kill(pid, signal.SIGKILL)
    agents.together(*agents.names, within_s=60)

    pause = agents.folder("node-0") / "pause"  # the first stage, the host, and most of the memory
    pause.touch()
    why = "node-1 and node-2 hold 2 of 4 layers: 4.0 GB are missing, waiting for node-0"
    for name in ("node-1", "node-2"):
        agents.wait(lambda name=name: agents.now(name).get("reason") == why, 40, f"{name} does not wait")
    pause.unlink()
    agents.together(*agents.names, within_s=60)

    agents.kill("node-2")  # a machine: cut again, over two
    agents.together("node-0", "node-1", within_s=60)
    assert layers(agents, "node-0") == {"node-0": [0, 3], "node-1": [3, 4]}
    agents.stop()
    trained = [event["step"] for event in agents.events("node-0") if event["event"] == "step"]
    assert len(trained) - len({*trained}) <= 3, "more than the step under way was lost"

    found = steps_in_all_logs(agents)
    assert sorted(found) == list(range(1, len(found) + 1))
    truth = cluster.train(tmp_path / "one", OPTIONS | {"dataset": data, "max_steps": len(found)})
    assert [found[step] for step in sorted(found)] == pytest.approx(truth.losses(), rel=1e-6)
