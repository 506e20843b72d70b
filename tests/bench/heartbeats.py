"""Real heartbeats of N nodes on loopback addresses, in a network namespace of their own: what travels, and what it
costs of a core.

    unshare -n python -m tests.bench.heartbeats 16 --seconds 20
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from pathlib import Path

from train.cluster.agent_surroundings import Outside
from train.cluster.heartbeat import Heartbeat
from train.cluster.node_status import Generation, NodeStatus
from train.plan.launch.cluster_config import ClusterConfig, Member


def status(name: str, names: tuple[str, ...]) -> NodeStatus:
    """Of one that trains with all others."""
    ours = Generation(number=12, host=names[0], members=names, port=29418)
    return NodeStatus(name=name, number=12, generation=ours, reachable=names, group="running", step=2000, begun=True)


def sent() -> int:
    """All bytes on this namespace's loopback, with what TCP/IP adds."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.split()[0] == "lo:")
    return int(line.split()[9])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("nodes", type=int)
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    nodes = tuple(Member(name=f"gpu-worker-{i}", address=f"127.0.1.{i + 1}") for i in range(args.nodes))
    names = tuple(node.name for node in nodes)
    for name in names:
        config = ClusterConfig(run="growth", node=name, token="0" * 32, nodes=nodes)
        Heartbeat(config, lambda name=name: status(name, names), Outside()).start()  # type: ignore[misc]
    time.sleep(3)
    bytes_before, busy_before, since = sent(), sum(os.times()[:2]), time.monotonic()
    time.sleep(args.seconds)
    took = (time.monotonic() - since) * args.nodes
    print(json.dumps({"bytes": (sent() - bytes_before) / took, "core": (sum(os.times()[:2]) - busy_before) / took}))
    os._exit(0)  # its threads have no end


if __name__ == "__main__":
    main()
