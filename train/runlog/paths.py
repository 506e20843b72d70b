"""Names of a run's files and folders: below the home of a node, and below results/RUN where they were fetched to."""

from __future__ import annotations

from pathlib import Path

EVENTS = "events.jsonl"  # what the trainer did
MEMBERS = "members.jsonl"  # what the node's agent saw and did
GPU = "gpu.jsonl"
TRACES = "trace-*.json.gz"  # what each process of the node did in the steps of `profile`
TRACE = "trace.json.gz"  # of all nodes, where a run was fetched to
AGENT = "agent.json"  # the agent's view of this moment
MEMORY = "epoch.json"  # what the agent must know after a restart; for nobody else
LAUNCH = "launch.json"  # what was launched, and what was predicted of it
PIECES = "pieces.jsonl"  # beside it, of a run whose work comes in pieces: what is done
DECIDED = "decided.json"  # beside the checkpoints: what the run decided by itself
OUTPUT = "output.jsonl"  # what a script of your own printed (train/cluster/torchrun.py)
ANSWERS = "answers.json"
CLUSTER, SETTINGS = "config/cluster_config.yaml", "config/training_config.yaml"  # of the run that a node was given last
UNIT = "motley-run.service"
WANTED = "config/run-wanted"  # while it is there, motley-run.path starts that unit
PRELOAD = "config/run-preload"  # while it is there, that unit loads already, without a run (train/cluster/preload.py)
MAY_SLEEP = "config/may-sleep"  # while it is there, the machine may sleep during a run
ASKED = "config/asked"  # MAY_SLEEP has come or gone: motley-asked.service takes this away and looks
THEN = "config/then"  # suspend or poweroff, now that the run is over: motley-asked.service does it
QUEUE = "config/queue"  # the runs that are to follow one another (queue_order.py): a folder for each, and
QUEUE_LIST, QUEUE_ASKED = f"{QUEUE}/list.json", f"{QUEUE}/asked.json"  # what its agent knows; what people changed
PAUSE = "pause"  # while it is there, this node steps aside (train/pause.py)
SECRET = "config/secret.json"  # noqa: S105  0600: the token of the launch, and where messages go
NODES = "nodes"  # results/RUN/nodes/NODE: the logs of each node


def logs(home: Path, run: str) -> Path:
    return home / "logs/runs" / run


def checkpoints(home: Path, run: str) -> Path:
    return home / "models/checkpoints" / run


ADAPTER, MODEL, GIVEN_ANSWERS, SWEEP, SCORES = MADE = ("adapter", "model", "answers", "sweep", "scores")
"""What a run makes, by its recipe: the folder below its results."""


def results(home: Path, run: str) -> Path:
    return home / "results" / run


def made(home: Path, run: str) -> Path | None:
    """The folder of what a finished run has made."""
    return next((results(home, run) / name for name in MADE if (results(home, run) / name).is_dir()), None)
