"""Whether a key opens a node: asked by ssh itself, by the pinned host key, without a question. On the controller."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypedDict

TOUCH_S = 30.0
"""How long a key that wants a touch (FIDO) may wait for one."""
DEFAULT_NAMES = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")


def own_keys(folder: Path, agent_has_some: bool) -> list[str]:
    """The words that make ssh offer every key of the person who types; none where there is no key.

    ssh that is given one key leaves out those of ~/.ssh, so they are named.
    """
    files = [name for name in DEFAULT_NAMES if (folder / name).exists()]
    if not files and not agent_has_some:
        return []
    return ["-o", "IdentitiesOnly=no", *(word for name in files for word in ("-o", f"IdentityFile=~/.ssh/{name}"))]


def agent_has_some() -> bool:
    return subprocess.run(["ssh-add", "-l"], capture_output=True, check=False).returncode == 0


class Login(TypedDict):
    name: str
    address: str
    port: int
    user: str


def opened_by(own: list[str], nodes: list[Login], state_folder: str) -> list[str]:
    """The nodes that our key does not open, and one of these keys does."""

    def needs_own(node: Login) -> bool:
        return not opens(["-o", "IdentitiesOnly=yes"], node, state_folder) and opens(own, node, state_folder)

    if not own or not nodes:
        return []
    with ThreadPoolExecutor(len(nodes)) as pool:
        return [node["name"] for node, needs in zip(nodes, pool.map(needs_own, nodes)) if needs]  # noqa: B905


def opens(keys: list[str], node: Login, state_folder: str) -> bool:
    settings = {
        "BatchMode": "yes",
        "PreferredAuthentications": "publickey",
        "ControlPath": "none",
        "ConnectTimeout": 10,
        "GlobalKnownHostsFile": "none",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": f'"{state_folder}/known_hosts"',
        "HostKeyAlias": node["name"],
        "Port": node["port"],
        "User": node["user"],
    }
    words = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    command = ["ssh", *keys, *words, "-i", f"{state_folder}/controller_ed25519", node["address"], "true"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=TOUCH_S)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
