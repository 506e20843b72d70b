"""A Slurm of somebody else's, by its login node: a run is a job there, and its nodes are whichever the job gets.

The verbs are answered by plugins/module_utils/motley/slurm_login_node.py on the login node. What a run has made lies in
the homes of its places, which are nodes of their own to those who fetch or use it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from console.infra import is_local
from console.infra.node import MOTLEY, SENT_ALONG, Node, Silent, home_of, ssh_options
from plugins.module_utils.motley.node_replies import Hashes, Places, Stopped

STOP_S = 90.0
ASK_S = 20.0
"""Slurm's own commands may take their time on a busy cluster."""


def node(name: str, values: Mapping[str, Any], state: str) -> Node:
    ssh = () if is_local(values) else login(name, values, state)
    return SlurmNode(name=name, home=home_of(name, values, state), ssh=ssh)


def login(name: str, values: Mapping[str, Any], state: str) -> tuple[str, ...]:
    """The ssh command to log in as Ansible does, by the person's keys and ~/.ssh/config: it is no machine of ours."""
    usual = ("BatchMode=yes", "ConnectTimeout=8", "LogLevel=ERROR", "ServerAliveInterval=5", "ServerAliveCountMax=3")
    options = [*(f"-o{option}" for option in usual), *ssh_options(name, values, state)]
    who = f"{user}@" if (user := values.get("ansible_user")) else ""
    return ("ssh", "-T", *options, f"{who}{values.get('ansible_host', name)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginNode(Node):
    ssh: tuple[str, ...]
    """How one logs in there; empty where one is there already."""

    answer_s: ClassVar[float] = ASK_S

    def command(self, words: Sequence[str]) -> list[str]:
        return [*self.ssh, shlex.join(words)] if self.ssh else list(words)

    def why(self, words: list[str]) -> str:
        said = [line for line in words if not line.startswith("Warning: ")]
        return f"{said[-1]} (by hand: {shlex.join(self.ssh)})" if said and self.ssh else Node.why(self, said)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmNode(LoginNode):
    mute: str = ""
    """Why it does not say where a run's files lie."""

    brings: ClassVar[tuple[str, ...]] = (*SENT_ALONG, f"{MOTLEY}.start_stop_status")
    answers_by: ClassVar[str] = f"{MOTLEY}.slurm_login_node"

    def stop(self, timeout_s: float = STOP_S) -> Stopped:
        return self._ask(Stopped, "stop", timeout_s)

    def parts(self, run: str) -> list[Node]:
        """The places of this run, or of the newest; itself where there is none, to say what there is."""
        try:
            answer = self._ask(Places, "parts", run=run)
        except Silent as why:
            return [replace(self, mute=str(why))]
        one_node = tuple(answer["one_node"])
        return [
            PlaceNode(name=place.rpartition("/")[2], home=place, ssh=self.ssh, one_node=one_node)
            for place in answer["places"]
        ] or [self]

    def files(self, run: str) -> Hashes:
        raise Silent(self.mute or "no run has left files there")


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaceNode(LoginNode):
    """The home of one node of a run, on the shared disk."""

    one_node: tuple[str, ...]
    """How Slurm is asked for a node of that kind."""

    def train(self, words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """On a node that Slurm gives for it: a login node is not there to compute."""
        plain = Node.train(self, words, environment)
        script = shlex.split(plain[-1])[-1] if self.ssh else plain[-1]
        return self.command(["srun", "--quiet", "--nodes=1", "--ntasks=1", *self.one_node, "sh", "-c", script])
