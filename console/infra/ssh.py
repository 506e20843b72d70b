"""Asks nodes directly over SSH about their run: seconds less than a playbook, and a node that is off delays nobody.

The same keys, pinned host keys and names as Ansible uses; plugins/module_utils/motley/run_control.py is sent along and
does the work there. No connection is shared with Ansible: one that hangs on a dead machine would hang this as well.
"""

from __future__ import annotations

import configparser
import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.inventory import Inventory

ROOT = Path(__file__).parents[1]
RUN_HERE = ROOT / "plugins/module_utils/motley/run_control.py"
KNOCK_S = 1.2
ANSWER_S = 6.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    name: str
    addresses: tuple[str, ...]
    home: str
    state: str
    user: str = ""
    port: int = 22
    local: bool = False


def from_inventory(inventory: Inventory) -> list[Node]:
    state = str(inventory.state.resolve())
    return [_node(name, values, state) for name, values in inventory.nodes.items()]


def from_hostvars(names: Iterable[str], hostvars: Any) -> list[Node]:
    """Inside Ansible, which has already replaced every template."""
    return [_node(name, hostvars[name], str(Path(hostvars[name]["motley_state_folder"]).resolve())) for name in names]


def _node(name: str, values: Mapping[str, Any], state: str) -> Node:
    keys = ("ansible_host", "motley_address", "motley_current_address")
    addresses = [str(values[key]) for key in keys if key in values]
    home = str(values["motley_home"]) if "motley_home" in values else "~/ai-cluster"
    return Node(
        name=name,
        addresses=tuple(dict.fromkeys(address for address in addresses if "{{" not in address)),
        home=home.replace("{{ motley_state_folder }}", state).replace("{{ inventory_hostname }}", name),
        state=state,
        user=str(values["ansible_user"]) if "ansible_user" in values else "",
        port=int(values["ansible_port"]) if "ansible_port" in values else 22,
        local="ansible_connection" in values and values["ansible_connection"] == "local",
    )


class Silent(Exception):
    """Why a node gave no answer."""


def command(node: Node, verb: str, **wish: Any) -> list[str]:
    """What runs a verb of run_here.py there, which it gets on its standard input."""
    words = ["-", verb, json.dumps({"home": node.home, **wish})]
    if node.local:
        return [sys.executable, *words]
    address = answering(node)
    return [*ssh_words(node, address), shlex.join(["python3", *words])]


def train_there(node: Node, words: list[str], environment: Mapping[str, str]) -> list[str]:
    """A command of the node's own training package, in its folder, with the standard input and output of the caller."""
    folder = '"$HOME"' + shlex.quote(node.home[1:]) if node.home.startswith("~") else shlex.quote(node.home)
    known = shlex.join(f"{name}={value}" for name, value in {"PYTHONPATH": "code", **environment}.items())
    script = f"cd {folder} && exec env {known} env/bin/python -m train {shlex.join(words)}"
    return ["sh", "-c", script] if node.local else [*ssh_words(node, answering(node)), shlex.join(["sh", "-c", script])]


def ssh_words(node: Node, address: str) -> list[str]:
    """Ours come first, as ssh takes the first of two; then those of ansible.cfg."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "ansible.cfg")
    own = {
        "ControlMaster": "no",
        "ControlPath": "none",
        "ConnectTimeout": 3,
        "ServerAliveInterval": 2,
        "ServerAliveCountMax": 2,
        "BatchMode": "yes",
        "LogLevel": "ERROR",
        "UserKnownHostsFile": f'"{node.state}/known_hosts"',  # ssh itself takes a space for the next file
        "HostKeyAlias": node.name,
    }
    words = [word for name, value in own.items() for word in ("-o", f"{name}={value}")]
    shared = shlex.split(settings["ssh_connection"]["ssh_args"])
    who = ["-i", f"{node.state}/controller_ed25519", "-p", str(node.port), f"{node.user}@{address}"]
    return ["ssh", "-T", *words, *shared, *who]


def answering(node: Node) -> str:
    """The first of its addresses that answers; its host key says later whether it is the machine that is meant."""
    with ThreadPoolExecutor(len(node.addresses)) as pool:
        found = list(pool.map(lambda address: _knock(address, node.port), node.addresses))
    for address, answers in zip(node.addresses, found, strict=True):
        if answers:
            return address
    raise Silent(f"nobody answers at {' or '.join(node.addresses)}")


def _knock(address: str, port: int) -> bool:
    """Until the server says who it is: the kernel of a frozen machine still accepts."""
    try:
        with socket.create_connection((address, port), KNOCK_S) as connection:
            connection.settimeout(KNOCK_S)
            return connection.recv(4).startswith(b"SSH-")
    except OSError:
        return False


def ask(node: Node, verb: str, *, timeout_s: float = ANSWER_S, **wish: Any) -> dict[str, Any]:
    with RUN_HERE.open("rb") as program, tempfile.TemporaryFile() as said:
        try:
            done = subprocess.run(
                command(node, verb, **wish),
                stdin=program,
                stdout=subprocess.PIPE,
                stderr=said,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Silent(f"it gave no answer within {timeout_s:.0f} s") from None
        said.seek(0)
        words = said.read().decode(errors="replace").strip().splitlines()
    if done.returncode or not done.stdout:
        raise Silent(why(words, node))
    return dict(json.loads(done.stdout))


def why(words: list[str], node: Node) -> str:
    text = "\n".join(words)
    if "verification failed" in text or "IDENTIFICATION HAS CHANGED" in text:
        return f"it shows another host key than the pinned one (reinstalled? make bootstrap REPIN={node.name})"
    if "Permission denied" in text:
        return f"Motley's key is not accepted there (make bootstrap PHASE=ssh_trust LIMIT={node.name})"
    return words[-1] if words else "it gave no answer"


def ask_all(nodes: list[Node], verb: str, **wish: Any) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Answers by name, and why the others gave none; all at once."""

    def one(node: Node) -> dict[str, Any] | str:
        try:
            return ask(node, verb, **wish)
        except Silent as reason:
            return str(reason)

    with ThreadPoolExecutor(max(1, len(nodes))) as pool:
        found = dict(zip([node.name for node in nodes], pool.map(one, nodes), strict=True))
    answers = {name: answer for name, answer in found.items() if isinstance(answer, dict)}
    return answers, {name: answer for name, answer in found.items() if isinstance(answer, str)}


def stream(node: Node, verb: str, **wish: Any) -> subprocess.Popen[bytes]:
    """A verb that goes on telling; in a session of its own, so that Ctrl-C is ours alone to answer."""
    with RUN_HERE.open("rb") as program:
        return subprocess.Popen(
            command(node, verb, **wish),
            stdin=program,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"),
        )
