"""What an agent looks at before it decides: its peers and its own workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from train.cluster.heartbeat import Peer
from train.cluster.node_status import NodeStatus
from train.cluster.start_workers import WorkersSeen


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What this node sees in one round."""

    at: float
    peers: Mapping[str, Peer]
    """The peers that are reachable, by name."""
    no_agent_s: Mapping[str, float]
    """The peers whose machines answer without an agent, and for how long."""
    workers: WorkersSeen

    @property
    def statuses(self) -> dict[str, NodeStatus]:
        return {name: peer.status for name, peer in self.peers.items() if peer.status}
