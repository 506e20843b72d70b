"""What the lab needs of this machine: root, programs, cgroups."""

from __future__ import annotations

import os
import shutil

from lab import cgroups
from lab.shell import fetch, run

PROGRAMS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
    "iptables": "iptables",
    "dpkg-scanpackages": "dpkg-dev",
    "mkfs.ext4": "e2fsprogs",
    "ssh-keygen": "openssh-client",
    "nsenter": "util-linux",
}


def what_is_missing() -> list[str]:
    """A line for each thing that keeps the lab from running here, with how to get it."""
    if os.geteuid() != 0:
        return ["The lab needs root: it makes namespaces, mounts and cgroups. Try: sudo make lab-up"]
    packages = missing_packages()
    lines = [f"The lab needs programs that are not here: apt install {' '.join(packages)}"] if packages else []
    if trouble := cgroups.check():
        lines.append(f"The lab needs writable cgroups: {trouble}")
    return lines


def missing_packages() -> list[str]:
    found = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return sorted({package for program, package in PROGRAMS.items() if not shutil.which(program, path=found)})


def install_packages() -> None:
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
    packages = missing_packages()
    run(*apt, "update", check=False, timeout_s=600)  # one source that is gone need not matter
    fetch(f"{' '.join(packages)} could not be installed", *apt, "-y", "install", *packages, timeout_s=1200)
