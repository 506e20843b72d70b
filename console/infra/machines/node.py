"""A node that is a machine, reached by ssh, or a folder of this one (inventory/loopback): no login, no unit, no root.

For a machine the same keys, pinned host keys and names as Ansible uses. No connection is shared with Ansible: one that
hangs on a dead machine would hang this as well.
"""

from __future__ import annotations

import configparser
import shlex
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, ClassVar

from console.infra import is_local
from console.infra.node import ROOT, Node, Silent, home_of, ssh_options
from plugins.module_utils.motley.hostkeys import greets

SETTINGS = ROOT / "ansible.cfg"
KNOCK_S = 1.2
BEHIND = ("-J", *(f"{before}{option}" for before in ("", "-o") for option in ("ProxyJump", "ProxyCommand")))
"""How an option of ssh begins that leads over another machine."""


def node(name: str, values: Mapping[str, Any], state: str) -> Node:
    home = home_of(name, values, state)
    if is_local(values):
        return LocalNode(name=name, home=home)
    keys = ("ansible_host", "motley_address", "motley_current_address")
    addresses = [str(values[key]) for key in keys if key in values]
    if "{{" not in addresses[0] and addresses[0] == str(values.get("ansible_host")):
        addresses = addresses[:1]  # a machine elsewhere: what it calls itself is no address here
    return SshNode(
        name=name,
        home=home,
        addresses=tuple(dict.fromkeys(address for address in addresses if "{{" not in address)),
        options=tuple(ssh_options(name, values, state)),
        user=str(values["ansible_user"]) if "ansible_user" in values else "",
        port=int(values["ansible_port"]) if "ansible_port" in values else 22,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalNode(Node):
    python: ClassVar[str] = sys.executable

    def command(self, words: Sequence[str]) -> list[str]:
        return list(words)


@dataclass(frozen=True, kw_only=True, slots=True)
class SshNode(Node):
    addresses: tuple[str, ...]
    options: tuple[str, ...]
    """Its inventory's own for ssh: which key opens it, which host key it has, and the way there."""
    user: str = ""
    port: int = 22

    def command(self, words: Sequence[str]) -> list[str]:
        return [*self.ssh(self.answering()), shlex.join(words)]

    def ssh(self, address: str) -> list[str]:
        """Our options come first, as ssh takes the first of two; then those of ansible.cfg, and of the inventory."""
        settings = configparser.ConfigParser(interpolation=None)
        settings.read(SETTINGS)
        own = {
            "ControlMaster": "no",
            "ControlPath": "none",
            "ConnectTimeout": 3,
            "ServerAliveInterval": 2,
            "ServerAliveCountMax": 2,
            "BatchMode": "yes",
            "LogLevel": "ERROR",
        }
        words = [word for name, value in own.items() for word in ("-o", f"{name}={value}")]
        shared = shlex.split(settings["ssh_connection"]["ssh_args"])
        return ["ssh", "-T", *words, *shared, *self.options, f"{self.user}@{address}"]

    def answering(self) -> str:
        """The first of its addresses that answers; its host key shows later whether it is the machine that is meant.
        Behind another machine only ssh gets there."""
        if any(word.startswith(BEHIND) for word in self.options):
            return self.addresses[0]
        knocks = [_knocking(address, self.port) for address in self.addresses]
        for address, answers in zip(self.addresses, knocks, strict=True):
            if answers.result():
                return address
        raise Silent(f"nobody answers at {' or '.join(self.addresses)}")

    def why(self, words: list[str]) -> str:
        text = "\n".join(words)
        if "verification failed" in text or "IDENTIFICATION HAS CHANGED" in text:
            return (
                f"it shows another host key than the pinned one (reinstalled? ./motley bootstrap --repin {self.name})"
            )
        if "Permission denied" in text:
            return f"Motley's key is not accepted there (./motley bootstrap --phase ssh_trust --nodes {self.name})"
        return words[-1] if words else "it gave no answer"


def _knocking(address: str, port: int) -> Future[bool]:
    """Knocks in a thread: where another address answers first nobody waits for it, not even the program's end."""
    answers: Future[bool] = Future()

    def knock() -> None:
        try:
            answers.set_result(_knock(address, port))
        except Exception as error:
            answers.set_exception(error)

    threading.Thread(target=knock, daemon=True).start()
    return answers


def _knock(address: str, port: int) -> bool:
    try:
        return greets(address, port, KNOCK_S)
    except OSError:
        return False
