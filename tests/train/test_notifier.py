"""Agents that send a run's messages themselves: each thing once, whoever hosts, and beside the training."""

import json
import re

import pytest

from tests.support.webhook import Webhook, webhook
from tests.train.agents import Agents
from train.runlog import paths
from train.runlog.secret import Secret

TINY = {"model": "tiny", "rows_per_step": 4, "lora_r": 4, "save_every": 20, "sync": "flat"}
SOON = "told_soon=3"


@pytest.fixture
def server():
    with webhook() as found:
        yield found


def bring(agents: Agents, address: str, *names: str) -> None:
    for name in names or agents.names:
        file = agents.folder(name) / paths.SECRET
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(Secret(messages=address).to_json())


def told(server: Webhook) -> list[str]:
    return [f"{facts['event']}: {facts['message']}" for facts in (json.loads(body) for _, _, body in server.got)]


def about(server: Webhook, *words: str) -> int:
    return sum(all(word in line for word in words) for line in told(server))


def sent(agents: Agents) -> list[str]:
    return [key for name in agents.names for key in re.findall(r"notify  (\S+) sent", agents.said(name))]


def hosts(agents: Agents, name: str) -> None:
    agents.wait(lambda: agents.now("node-2")["host"] == name, 20, f"{name} does not host")


def hears(agents: Agents, name: str, lost: str) -> None:
    """That somebody was told of that loss. Before, it tells it again if the sender dies."""

    def known() -> bool:
        facts = json.loads((agents.log(name) / "epoch.json").read_text())
        return any(key.endswith(f"-{lost}") for key in facts["notices"]["sent"])

    agents.wait(known, 20, f"{name} does not hear that somebody was told of {lost}")


@pytest.mark.long  # tests/unit/train/cluster/test_notifier.py
def test_a_loss_is_told_once_though_the_host_changes(data, tmp_path, server):
    agents = Agents(tmp_path, TINY | {"dataset": data, "max_steps": 100000}, size=4)
    bring(agents, server.address)
    agents.start(altered=SOON)
    agents.together(*agents.names, within_s=90)
    agents.kill("node-0")
    agents.wait(lambda: about(server, "lost: node-0 is lost since"), 40, "nobody is told of node-0")
    agents.start("node-0", altered=SOON)
    agents.together(*agents.names, within_s=60)
    agents.kill("node-3")
    agents.wait(lambda: about(server, "lost: node-3 is lost since"), 40, "nobody is told of node-3")
    hosts(agents, "node-1")
    hears(agents, "node-0", "node-3")
    agents.kill("node-1")  # the host: the head and one more are a majority
    agents.wait(lambda: about(server, "lost: node-1 is lost since"), 60, "nobody is told of node-1")
    hosts(agents, "node-0")
    hears(agents, "node-2", "node-1")
    agents.kill("node-0")
    agents.wait(lambda: about(server, "waiting: node-2 waits: no answer from"), 40, "nobody is told of the wait")
    agents.stop()
    assert len(set(sent(agents))) == len(sent(agents)), told(server)
    assert server.address not in agents.said("node-2") and "lost-" in agents.said("node-1")


def test_a_failure_is_told_once(data, tmp_path, server):
    agents = Agents(tmp_path, TINY | {"dataset": data, "max_steps": 100}, size=2)
    bring(agents, server.address)
    agents.start(program="tests/train/broken.py nan_loss=6")
    assert agents.ended(60) == [1, 1]
    (line,) = told(server)
    assert line.startswith("failed: run run failed: ") and "the loss is nan" in line


@pytest.mark.long  # tests/unit/train/cluster/test_notifier.py
def test_an_address_that_never_answers_delays_no_step(data, tmp_path):
    agents = Agents(tmp_path, TINY | {"dataset": data, "max_steps": 100000}, size=3)
    hangs = agents.home / "hangs"
    bring(agents, f"touch {hangs}; sleep 600")
    agents.start(altered=SOON)
    agents.together(*agents.names, within_s=90)
    agents.kill("node-2")
    agents.wait(hangs.exists, 40, "nobody sends")
    before = agents.last_step("node-0")["step"]
    agents.together("node-0", "node-1", step=before + 5, within_s=9)
    agents.stop()
