"""A node's own part in what a role does: its modules, called there without a playbook and its ways to all nodes."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ansible
import ansible.release

from lab.host import Host
from lab.profile import USER
from plugins.filter.plan_netplan import motley_netplan
from tests.support import pace
from tests.support.cluster import REPOSITORY

FOLDER = "/root/modules"


def runs(host: Host, module: str, **asked: Any) -> dict[str, Any]:
    """What it answers; `failed` is in it where it refuses."""
    _bring(host)
    told = json.dumps({"ANSIBLE_MODULE_ARGS": asked})
    program = ["env", "-C", "/", f"PYTHONPATH={FOLDER}", "python3", f"{FOLDER}/{module}.py"]
    answer = host.run(*program, check=False, stdin=told)
    assert answer, f"{module} gives no answer"
    return dict(json.loads(answer))


def _bring(host: Host) -> None:
    """Modules find what they share where Ansible's package would have it."""
    there = host.disk.root / FOLDER.lstrip("/")
    if there.exists():
        return
    shutil.copytree(REPOSITORY / "plugins/modules", there)
    of_ansible = Path(ansible.__file__).parent
    shutil.copytree(of_ansible / "module_utils", there / "ansible/module_utils")
    for package in ("motley", "train"):  # the second is a link, to what modules share with the trainer
        here = REPOSITORY / "plugins/module_utils" / package
        shutil.copytree(here, there / "ansible/module_utils" / package, ignore=shutil.ignore_patterns("__pycache__"))
    # The package's own wants more of the package.
    (there / "ansible/__init__.py").write_text(f"__version__ = '{ansible.release.__version__}'\n")


@dataclass(frozen=True)
class Move:
    """One node's change of its address, step by step as roles/motley_static_ip asks for it."""

    host: Host
    plan: dict[str, Any]
    gateway: str
    reached_at: str

    def begins(self, rollback_s: float = 60) -> dict[str, Any]:
        plan = {name: self.plan[name] for name in ("manager", "adopts")} | {"files": json.dumps(self.plan["files"])}
        return self._runs("begin", rollback_s=pace.seconds(rollback_s), reached_at=self.reached_at, **plan)

    def confirms(self) -> dict[str, Any]:
        """As the controller asks, once the node answers at its new address."""
        address = f" {self.plan['address']} "
        pace.until(lambda: address in self.host.run("ip", "-br", "-4", "address") + " ", 60, f"it has no{address}")
        return self._runs("confirm", reached_at=self.reached_at)

    def goes_back(self) -> bool:
        return bool(self._runs("back")["gone_back"])

    def _runs(self, step: str, **more: Any) -> dict[str, Any]:
        nic = {name: self.plan[name] for name in ("mac", "nic", "address")}
        return runs(self.host, "netplan_change", step=step, gateway=self.gateway, **nic, **more)


def looks(host: Host) -> dict[str, Any]:
    return runs(host, "preflight_info", user=USER, strict=False)


def planned(
    host: Host, address: str = "", *, gateway: str = "", dns: tuple[str, ...] = (), reached_at: str = ""
) -> Move:
    """To the address that its inventory asks for, unless another is given."""
    reached_at = reached_at or host.spec.installed_address
    gateway = gateway or host.profile.gateway
    wanted = {
        "address": address or host.spec.address,
        "prefix": str(host.profile.network.prefixlen),
        "gateway": gateway,
        "dns": list(dns),
        "mac": "",
        "adopt": "none",
        "reached_at": reached_at,
    }
    return Move(host, motley_netplan(looks(host)["node"], wanted), gateway, reached_at)


def moves(move: Move) -> str:
    """To its end; what it says of it."""
    begun = move.begins()
    assert begun.get("changed"), begun
    confirmed = move.confirms()
    assert "rollback disarmed" in confirmed.get("motley_say", ""), confirmed
    return str(confirmed["motley_say"])
