"""Judges what a node reports about itself: all that blocks it, each with its fix. Pure."""

from __future__ import annotations

from typing import TypedDict

SYSTEMS = {"debian": 12.0, "ubuntu": 24.04}
CONTAINERS = ("docker", "lxc", "lxc-libvirt", "openvz", "podman", "pouch", "proot", "rkt")
"""The containers, as systemd-detect-virt names them; one of systemd-nspawn may have its own network and boot."""
SHARED = ("nfs", "cifs", "smb2")
"""The file systems that several machines have in common, as stat calls them."""
PYTHON = ((3, 11), (3, 14))
"""The oldest and the newest that the locked sets serve."""


class ClusterFolder(TypedDict):
    path: str
    at: str
    """The nearest folder that is there."""
    open: bool
    """Whether the login user can work in it."""
    filesystem: str


class Judged(TypedDict):
    """What is judged of a node's report."""

    os: dict[str, str]
    python: list[int]
    wsl: bool
    proxmox: bool
    container: str
    cluster: ClusterFolder
    places: dict[str, str]
    free_gb: dict[str, float]
    apt_lock: str
    apt_waited_s: float


def judge(report: Judged, disk_gb: float) -> list[dict[str, str]]:
    """Findings as {what, fix}; an empty list is a good node."""
    checks = (_system, _whole, _python, _folder, _disk, _apt)
    return [finding for check in checks for finding in check(report, disk_gb)]


def _system(report: Judged, _: float) -> list[dict[str, str]]:
    system = report["os"]
    least = SYSTEMS.get(system.get("ID", ""))
    if least is None and "ubuntu" in system.get("ID_LIKE", "").split():
        return []  # a flavour such as Mint counts its versions differently
    if least is None:
        what = f"runs {system.get('PRETTY_NAME', 'an unknown system')}"
        return [{"what": what, "fix": "install Ubuntu 24.04 or newer, or Debian 12 or newer"}]
    version = system.get("VERSION_ID", "")
    if version and float(version) < least:  # Debian testing has no number
        what = f"runs {system.get('PRETTY_NAME')}, too old"
        return [{"what": what, "fix": f"upgrade it to {system['ID'].capitalize()} {least:g} or newer"}]
    return []


def _whole(report: Judged, _: float) -> list[dict[str, str]]:
    """A machine of its own, whose name, network and drivers bootstrap may set."""
    if report["wsl"]:
        fix = "boot Linux on it; WSL2 hides the machine behind Windows' own network and firewall"
        return [{"what": "is Windows' WSL2, not a machine of its own", "fix": fix}]
    if report["proxmox"]:
        fix = "pass its card through to a virtual machine (Proxmox: PCI Passthrough) and name that one in hosts.yml"
        return [{"what": "runs Proxmox VE, which knows its guests by the name that the machine has now", "fix": fix}]
    if report["container"] in CONTAINERS:
        fix = "name the machine that it runs on, or a virtual machine with the card passed through, in hosts.yml"
        what = f"is a container ({report['container']}), whose network and drivers are those of the machine below"
        return [{"what": what, "fix": fix}]
    return []


def _python(report: Judged, _: float) -> list[dict[str, str]]:
    (oldest, newest), found = PYTHON, tuple(report["python"][:2])
    if oldest <= found <= newest:
        return []
    fix = "upgrade the system" if found < oldest else "a newer Motley may know it (git pull)"
    served = f"{'.'.join(map(str, oldest))} to {'.'.join(map(str, newest))}"
    return [{"what": f"has Python {'.'.join(map(str, report['python']))}", "fix": f"it needs {served}: {fix}"}]


def _folder(report: Judged, _: float) -> list[dict[str, str]]:
    folder = report["cluster"]
    path, at = folder["path"], folder["at"]
    if folder["filesystem"] in SHARED:
        what = f"has {path} on {folder['filesystem']}, of another machine: each node needs a folder of its own"
        return [{"what": what, "fix": "motley_home in hosts.yml: a folder on its own disk, such as /srv/cluster"}]
    if folder["open"]:
        return []
    fix = f"sudo chown $(id -un): {at}   (on that machine, as the login user)"
    if at != path:
        fix = f"sudo chmod a+x {at} on that machine, or another motley_home in hosts.yml"
    return [{"what": f"does not let the login user work in {at} (motley_home is {path})", "fix": fix}]


def _disk(report: Judged, disk_gb: float) -> list[dict[str, str]]:
    findings = []
    for place, free in report["free_gb"].items():
        least = disk_gb if place == "home" else 0.5
        if free < least:
            what = f"has {free:.1f} GB free for {report['places'][place]}, {least:g} GB are needed"
            findings.append({"what": what, "fix": f"make room: du -xhd1 {report['places'][place]} | sort -h"})
    return findings


def _apt(report: Judged, _: float) -> list[dict[str, str]]:
    if not report["apt_lock"]:
        return []
    what = f"apt is busy since {report['apt_waited_s']:.0f} s: {report['apt_lock']}"
    fix = "let it finish and run again; see it with: systemctl status apt-daily-upgrade unattended-upgrades"
    return [{"what": what, "fix": fix}]
