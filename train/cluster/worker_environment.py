"""What a worker is told by environment variables: its rank, how many there are, and where the group meets. Those of
libraries: templates/launch_cluster.sh.j2."""

from __future__ import annotations

import hmac
import os

from train.cluster.node_status import Generation
from train.engine.shutdown import WAITS
from train.plan.launch.cluster_config import ClusterConfig


def alone(cluster: ClusterConfig, local: int) -> dict[str, str]:
    """Of one that loads before it is in a group."""
    return {"MOTLEY_NODE": cluster.node, "LOCAL_RANK": str(local), WAITS: "1"}


def in_group(cluster: ClusterConfig, generation: Generation, local: int) -> dict[str, str]:
    """Ranks follow the generation's order, the host's first."""
    node, sizes = cluster.node, [cluster.of(name).processes for name in generation.members]
    who = f"store {generation.number} {generation.host} {generation.port}"
    env = {
        "RANK": str(sum(sizes[: generation.members.index(node)]) + local),
        "WORLD_SIZE": str(sum(sizes)),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(cluster.of(node).processes),
        "MASTER_ADDR": cluster.of(generation.host).address,
        "MASTER_PORT": str(generation.port),
        "MOTLEY_NODE": node,
        "MOTLEY_GENERATION": str(generation.number),
        "MOTLEY_STORE_KEY": hmac.digest(cluster.token.encode(), who.encode(), "sha256").hex(),
    }
    if cluster.pipe:
        env["MOTLEY_HOLDS"] = str(cluster.pipe.of([node]))
    if interface := cluster.interface:
        networks = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"}
        env |= {name: os.environ.get(name, value) for name, value in networks.items()}
    return env
