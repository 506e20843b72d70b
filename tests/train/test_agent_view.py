"""What an agent shows of itself in agent.json."""

import json
from pathlib import Path
from types import SimpleNamespace as Some

from train.cluster.agent import Agent
from train.cluster.agent_files import StatusFile
from train.cluster.agent_surroundings import Outside
from train.cluster.node_status import NodeStatus


def test_a_change_is_shown_at_once_and_the_same_again_only_after_a_second(tmp_path: Path) -> None:
    agent, file = Agent.__new__(Agent), tmp_path / "agent.json"
    outside = Outside()
    agent.file, agent.shown, agent.now, agent.outside = StatusFile(file, outside), (), outside.clock.now, outside
    agent.cluster, agent.memory = Some(run="r", node="a"), Some(verdict=None, number=1)
    agent.status, agent.generation, agent.reason = NodeStatus(name="a", number=1), None, "waiting for b"
    agent.workers = Some(progress=Some(step=0, stepped=False), of=lambda _: None, saves_s=3.5)
    agent.stepping, agent.heartbeat, agent.gpus = Some(now=None), Some(snapshot=dict), Some(now=[])
    agent._show()
    shown = json.loads(file.read_text())
    assert shown["reason"] == "waiting for b" and shown["saves_s"] == 3.5
    agent.reason = "steps aside: paused"
    agent._show()
    assert json.loads(file.read_text())["reason"] == "steps aside: paused"
    file.unlink()
    agent._show()
    assert not file.exists()
    agent.file.next_at = 0.0
    agent._show()
    assert file.exists()
