"""Which infra each node of an inventory is on."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from console.infra.kubernetes.node import KubernetesNode, kubectl_of
from console.infra.local import LocalNode
from console.infra.node import Node
from console.infra.slurm.node import SlurmNode
from console.infra.ssh import SshNode
from console.inventory.read import Inventory, is_local
from train.layout import HOME


def from_inventory(inventory: Inventory) -> list[Node]:
    state = str(inventory.state.resolve())
    return [_node(name, values, state) for name, values in inventory.nodes.items()]


def from_hostvars(names: Iterable[str], hostvars: Any) -> list[Node]:
    """Inside Ansible, which has already replaced every template."""
    return [_node(name, hostvars[name], str(Path(hostvars[name]["motley_state_folder"]).resolve())) for name in names]


def _node(name: str, values: Mapping[str, Any], state: str) -> Node:
    home = str(values["motley_home"]) if "motley_home" in values else HOME
    home = home.replace("{{ motley_state_folder }}", state).replace("{{ inventory_hostname }}", name)
    if values.get("infra") == "slurm":
        return SlurmNode(name=name, home=home, ssh=() if is_local(values) else login(name, values))
    if values.get("infra") == "kubernetes":
        return KubernetesNode(name=name, home="", kubectl=kubectl_of(values))
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
        state=state,
        user=str(values["ansible_user"]) if "ansible_user" in values else "",
        port=int(values["ansible_port"]) if "ansible_port" in values else 22,
    )


def login(name: str, values: Mapping[str, Any]) -> tuple[str, ...]:
    """The ssh command to log in as Ansible does, by the person's keys and ~/.ssh/config: it is no machine of ours."""
    usual = ("BatchMode=yes", "ConnectTimeout=8", "LogLevel=ERROR", "ServerAliveInterval=5", "ServerAliveCountMax=3")
    options = [f"-o{option}" for option in usual]
    options += shlex.split(str(values.get("ansible_ssh_common_args", "")))
    if key := values.get("ansible_ssh_private_key_file"):
        options += ["-i", str(key)]
    if port := values.get("ansible_port"):
        options += ["-p", str(port)]
    who = f"{user}@" if (user := values.get("ansible_user")) else ""
    return ("ssh", "-T", *options, f"{who}{values.get('ansible_host', name)}")
