"""Names of a run's files and folders: below the home of a node, and below results/RUN where they were fetched to."""

from __future__ import annotations

from pathlib import Path

EVENTS = "events.jsonl"  # what the trainer did
MEMBERS = "members.jsonl"  # what the node's agent saw and did
GPU = "gpu.jsonl"
AGENT = "agent.json"  # the agent's view of this moment
LAUNCH = "launch.json"  # what was launched, and what was predicted of it
ANSWERS = "answers.json"
NODES = "nodes"  # results/RUN/nodes/NODE: the logs of each node


def logs(home: Path, run: str) -> Path:
    return home / "logs/runs" / run


def checkpoints(home: Path, run: str) -> Path:
    return home / "models/checkpoints" / run


def results(home: Path, run: str) -> Path:
    return home / "results" / run
