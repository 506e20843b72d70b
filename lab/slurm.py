"""A real Slurm on a lab's hosts, as somebody else's cluster: configured and started, with a folder that all share.

The layer `slurm` brings the suite's own packages. The first host is the login node and has slurmctld; all compute.
slurm.conf is the one that ./motley slurm-conf renders, but for what a container cannot do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from console.infra.slurm import slurm_conf
from console.infra.slurm.machine_facts import layout
from console.infra.slurm.slurm_conf import Machine
from lab.host import SHARED, Host
from lab.lab import Lab, each, wait_until
from lab.place import Place
from lab.profile import USER
from lab.shell import run

UNITS = {"munge": "munge", "slurmctld": "slurm", "slurmd": "root"}
CARDS = {"gpu-master": ("rtx5070ti",), "gpu-worker-1": ("rtx4070", "rtx4070"), "gpu-worker-2": ("rtx3070ti",)}
"""Devices that exist everywhere stand for them."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random")
IN_A_CONTAINER = {
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "AuthInfo": "cred_expire=5",  # so long a requeued job waits; 120 s is usual
    "SlurmdTimeout": "20",
    "KillWait": "15",
    "SchedulerParameters": "bf_interval=2,sched_interval=2",
    "InactiveLimit": "0",
}
MEMORY_MB = 4000
# What its units ask for, a container may not have.
LIMITS = "[Service]\nLimitNOFILE=4096\nLimitMEMLOCK=65536\nLimitSTACK=8388608\nDelegate=no\n"


def start(lab: Lab, own: Mapping[str, str] | None = None, cards: Mapping[str, Sequence[str]] = CARDS) -> None:
    """Until every node is idle. `own`: further options of slurm.conf."""
    machines = [_machine(host, cards.get(host.name, ())) for host in lab.hosts]
    files = slurm_conf.rendered("lab", machines, IN_A_CONTAINER | dict(own or {}))
    files["cgroup.conf"] = "CgroupPlugin=cgroup/v1\n"  # loaded in any case; no group is made
    key = os.urandom(128)
    names = "127.0.0.1\tlocalhost\n" + "".join(f"{each.address}\t{each.name}\n" for each in machines)
    each(lab.hosts, lambda host: _configure(host, files, names, key))
    head = lab.hosts[0]
    _let_in(lab.place, head)
    head.run("systemctl", "restart", "slurmctld")
    each(lab.hosts, lambda host: host.run("systemctl", "restart", "slurmd"))
    # As one hands work to it: right after its start sinfo knows no node yet.
    wait_until(lambda: _idle(head) == len(lab.hosts), f"Slurm has not all nodes: {_states(head)}")


def _machine(host: Host, cards: Sequence[str]) -> Machine:
    facts = layout(Path("/proc/cpuinfo").read_text())
    count = len(os.sched_getaffinity(0))
    same = facts["sockets"] * facts["cores"] * facts["threads"] == count
    parts = facts if same else {"sockets": 1, "cores": count, "threads": 1}
    devices = [{"type": kind, "file": DEVICES[place]} for place, kind in enumerate(cards)]
    return Machine(name=host.name, address=host.spec.installed_address, memory_mb=MEMORY_MB, cards=devices, **parts)


def _configure(host: Host, files: Mapping[str, str], names: str, key: bytes) -> None:
    root = host.disk.root
    (root / "etc/hosts").write_text(names)
    host.run("sh", "-c", f"echo {host.name} >/etc/hostname; hostname {host.name}")
    (root / "etc/slurm").mkdir(exist_ok=True)
    for name, text in files.items():
        (root / "etc/slurm" / name).write_text(text)
    munge = root / "etc/munge/munge.key"
    munge.unlink(missing_ok=True)
    munge.write_bytes(key)
    host.run("sh", "-c", "chown munge:munge /etc/munge/munge.key; chmod 400 /etc/munge/munge.key")
    for unit in UNITS:
        folder = root / f"etc/systemd/system/{unit}.service.d"
        folder.mkdir(exist_ok=True)
        (folder / "lab.conf").write_text(LIMITS)
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "restart", "munge")


def _let_in(place: Place, head: Host) -> None:
    """The key of somebody who has an account there; a home on the shared disk, as such a cluster has it."""
    key = login_key(place)
    if not key.exists():
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    ssh = head.disk.root / f"home/{USER}/.ssh"
    ssh.mkdir(exist_ok=True)
    (ssh / "authorized_keys").write_text(key.with_suffix(".pub").read_text())
    head.run("sh", "-c", f"chown -R {USER}:{USER} /home/{USER}/.ssh; chmod 700 /home/{USER}/.ssh")
    head.run("sh", "-c", f"install -d -o {USER} -g {USER} {SHARED}/{USER}")


def login_key(place: Place) -> Path:
    return place.root / "login_ed25519"


def inventory(lab: Lab, state: Path) -> dict[str, Any]:
    """What somebody with an account there writes down of it: one host, and how to log in."""
    head = lab.hosts[0]
    known = lab.place.root / "login_known_hosts"
    public = (head.disk.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[:2]
    known.write_text(f"{head.spec.installed_address} {' '.join(public)}\n")
    variables = {
        "ansible_user": USER,
        "ansible_ssh_private_key_file": str(login_key(lab.place)),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={known} -o ControlPath={lab.place.root}/%C",
        "motley_home": f"{SHARED}/{USER}/ai-cluster",
        "motley_state": str(state),
        "motley_python_env_manage": False,  # it comes as a layer
        "motley_preflight_disk_gb": 0.5,
        "motley_workspace_disk_gb": 0.5,
        "motley_render_environment": {"OMP_NUM_THREADS": 1},  # three machines share these cores
    }
    return {"cluster": {"vars": variables, "hosts": {"login": {"ansible_host": head.spec.installed_address}}}}


def slurm(head: Host, *words: str) -> str:
    """Runs a program on the head as the user who logs in."""
    return head.run("runuser", "-u", USER, "--", *words)


def _states(head: Host) -> str:
    return head.outcome("sinfo", "-hN", "-o", "%N %T %E").stdout.strip().replace("\n", "; ")


def _idle(head: Host) -> int:
    return head.outcome("sinfo", "-hN", "-t", "idle", "-o", "%N").stdout.count("\n")
