"""Agents that send a run's messages themselves: each thing once, whoever hosts, and beside the training."""

import json

import pytest

from tests.support.webhook import webhook
from tests.train.agents import Agents
from train.runlog import paths
from train.runlog.secret import Secret

TINY = {"model": "tiny", "rows_per_step": 4, "lora_r": 4, "save_every": 20, "sync": "flat"}


def bring(agents: Agents, address: str) -> None:
    for name in agents.names:
        file = agents.folder(name) / paths.SECRET
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(Secret(messages=address).to_json())


def test_a_failure_is_told_once(data, tmp_path):
    agents = Agents(tmp_path, TINY | {"dataset": data, "max_steps": 100}, size=2)
    with webhook() as server:
        bring(agents, server.address)
        agents.start(program="tests/train/broken.py nan_loss=6")
        assert agents.ended(60) == [1, 1]
    ((_, _, body),) = server.got
    told = json.loads(body)
    assert told["event"] == "failed" and told["message"].startswith("run run failed: ")
    assert "the loss is nan" in told["message"]


@pytest.mark.long  # tests/unit/train/cluster/test_notifier.py
def test_an_address_that_never_answers_delays_no_step(data, tmp_path):
    agents = Agents(tmp_path, TINY | {"dataset": data, "max_steps": 100000}, size=3)
    hangs = agents.home / "hangs"
    bring(agents, f"touch {hangs}; sleep 600")
    agents.start(altered="told_soon=3")
    agents.together(*agents.names, within_s=90)
    agents.kill("node-2")
    agents.wait(hangs.exists, 40, "nobody sends")
    before = agents.last_step("node-0")["step"]
    agents.together("node-0", "node-1", step=before + 5, within_s=9)
    agents.stop()
