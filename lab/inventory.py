"""The lab as an Ansible inventory: the same keys that a person writes into examples/hosts.yml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab import gpu
from lab.host import Host
from lab.lab import Lab
from lab.place import Place
from lab.profile import USER
from lab.shell import LabError


def inside_controller(place: Place) -> bool:
    """Whether this process sends its packets into the lab and not to the network of the real machine."""
    name = Path("/run/netns") / place.controller
    return name.exists() and Path("/proc/self/ns/net").stat().st_ino == name.stat().st_ino


def for_ansible(lab: Lab) -> dict[str, Any]:
    """Only to a process in the controller's namespace: elsewhere these addresses are somebody else's machines."""
    if not inside_controller(lab.place):
        raise LabError(
            "The lab's hosts can be reached from its own controller only.\n"
            "Run the command inside: python -m lab exec -- ansible-playbook …",
            code=2,
        )
    return {
        "cluster": {
            "hosts": [host.name for host in lab.hosts],
            "vars": {
                "ansible_user": USER,
                "motley_subnet": str(lab.profile.network),
                "motley_gateway": lab.profile.gateway,
                "motley_dns": [lab.profile.gateway],
                "motley_state": str(lab.place.root / "controller"),
                "motley_preflight_disk_gb": 0.5,
                "motley_render_environment": {"OMP_NUM_THREADS": 1},  # the hosts share this machine's cores
                "motley_python_env_sets": ["node-cpu"],  # the cards are simulated: nothing can compute on them
            },
        },
        "_meta": {"hostvars": {host.name: _facts(host) for host in lab.hosts}},
    }


def _facts(host: Host) -> dict[str, Any]:
    """What a person would have written down of this machine, and no more."""
    facts = {
        "motley_address": host.spec.address,
        "motley_current_address": host.spec.installed_address,
        "motley_gpu": gpu.card(host.spec).title,
    }
    return facts if host.ssh_port == 22 else facts | {"ansible_port": host.ssh_port}
