"""The read-only system that all hosts of a lab share: built once per suite, kept in the cache, never written again."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from lab import profile
from lab.place import CACHE
from lab.shell import LabError, fetch, run
from train.cache import build_once

# What an installer's minimal server has, and nothing that bootstrap is there to bring.
PACKAGES = (
    "systemd systemd-sysv systemd-timesyncd dbus libpam-systemd udev python3 python3-apt openssh-server sudo"
    " netplan.io iproute2 iputils-ping rsync ca-certificates less procps kmod pciutils nano nftables"
    " passwd adduser mount openssh-client netbase"
).split()
# Not installed, but offered by the lab's own package repository beside what is: what a role may want to add.
OFFERED = "ufw firewalld network-manager python3-venv shellcheck gcc libc6-dev libpython3-dev".split()
OFFERED_BY = {"trixie": ["sudo-rs"], "forky": ["sudo-rs"]}
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
UNRELEASED = "forky"
DEBIAN_SUITES = ("bookworm", "trixie", UNRELEASED)

WRITABLE_SYSFS = """\
[Unit]
Description=Lab: let netplan write the uevent files of this namespace's interfaces
DefaultDependencies=no
Before=netplan-configure.service systemd-networkd.service sysinit.target
ConditionVirtualization=container
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=mkdir -p /run/lab-sys
ExecStart=mount -t sysfs sysfs /run/lab-sys
ExecStart=mount -o remount,rw /run/lab-sys
ExecStart=mount --bind /run/lab-sys/devices/virtual/net /sys/devices/virtual/net
ExecStart=umount /run/lab-sys
[Install]
WantedBy=sysinit.target
"""


@dataclass(frozen=True, slots=True)
class Base:
    suite: str
    root: Path
    offered: Path
    """Folder of .deb files for the lab's repository."""


def default_suite() -> str:
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    codename = release.get("VERSION_CODENAME", "").strip('"')
    return codename if codename in DEBIAN_SUITES or release.get("ID") == "ubuntu" else "bookworm"


def offered(suite: str) -> list[str]:
    return [*OFFERED, *OFFERED_BY.get(suite, [])]


def locate(suite: str) -> Base:
    recipe = [*PACKAGES, *offered(suite), WRITABLE_SYSFS, profile.USER, profile.PASSWORD, Path(__file__).read_text()]
    folder = CACHE / f"{suite}-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:12]}"
    return Base(suite, folder / "root", folder / "offered")


def built(base: Base) -> bool:
    return base.root.exists()


def build(base: Base) -> None:
    """About half a minute and 300 MB; a build that was cut short leaves nothing that looks finished."""

    def make(unfinished: Path) -> None:
        (unfinished / "offered").mkdir()
        _bootstrap(base.suite, unfinished)
        _as_installed(unfinished / "root", base.suite)

    build_once(base.root.parent, make)


def sources(suite: str) -> str:
    """A mirror that this machine already uses, so that a proxy or a local mirror is respected."""
    if suite not in DEBIAN_SUITES:
        return "/etc/apt/sources.list.d/ubuntu.sources"
    if not Path(KEYRING).exists():
        raise LabError(f"{KEYRING} is missing: sudo apt install debian-archive-keyring", code=2)
    return f"deb [signed-by={KEYRING}] {_debian_mirror()} {suite} main"


def _debian_mirror() -> str:
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for file in files:
        for word in file.read_text().split() if file.is_file() else ():
            if word.startswith("http") and word.rstrip("/").endswith("/debian"):
                return word
    fix = "name one in /etc/apt/sources.list.d, or use the machine's own suite"
    raise LabError(f"this machine's apt knows no Debian mirror\n{fix}", code=2)


def _bootstrap(suite: str, folder: Path) -> None:
    offer = (
        'export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG";'
        f" apt-get -qq -y --download-only install {' '.join(offered(suite))}"
        f' && cp "$1"/var/cache/apt/archives/*.deb {folder}/offered/'
    )
    fetch(
        f"the base system ({suite}) could not be built",
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        "--variant=apt",
        f"--include={','.join(PACKAGES)}",
        '--aptopt=APT::Install-Recommends "false"',
        '--aptopt=Acquire::Languages "none"',
        # A mirror's copy of a suite that still changes may be older than its index promises; it is signed all the same.
        *(['--aptopt=Acquire::Check-Valid-Until "false"'] if suite == UNRELEASED else []),
        *(f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale")),
        f"--customize-hook={offer}",
        suite,
        folder / "root",
        sources(suite),
        timeout_s=1200,
    )


def _as_installed(root: Path, suite: str) -> None:
    def inside(*argv: str, stdin: str | None = None) -> None:
        run("chroot", root, *argv, stdin=stdin)

    def write(path: str, text: str) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)

    inside("useradd", "--create-home", "--shell", "/bin/bash", "--groups", "sudo", profile.USER)
    inside("chpasswd", stdin=f"{profile.USER}:{profile.PASSWORD}")
    write("etc/hostname", "debian\n")
    write("etc/hosts", "127.0.0.1\tlocalhost\n127.0.1.1\tdebian\n")
    write("etc/machine-id", "")
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    write("etc/resolv.conf", "# the lab has no DNS\n")
    shutil.rmtree(root / "etc/apt/sources.list.d")
    write("etc/apt/sources.list.d/lab.list", "")
    for stale in (*root.glob("etc/ssh/ssh_host_*"), root / "etc/apt/sources.list", root / "var/lib/dbus/machine-id"):
        stale.unlink(missing_ok=True)

    write("etc/systemd/system/lab-sysfs-net.service", WRITABLE_SYSFS)
    inside("systemctl", "--quiet", "enable", "ssh", "systemd-networkd", "lab-sysfs-net")
    # No terminal is attached, no timer may surprise a test, and nobody is there to answer first-boot questions.
    quiet = "systemd-networkd-wait-online getty@tty1 console-getty systemd-firstboot e2scrub_reap".split()
    timers = ["apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "dpkg-db-backup.timer"]
    inside("systemctl", "--quiet", "mask", *(f"{unit}.service" for unit in quiet), *timers)
    if suite != "bookworm":
        # netplan 1.x talks to udevd: let it run, but without the real machine's devices.
        for unit in ("systemd-udevd.service", "systemd-udevd-control.socket", "systemd-udevd-kernel.socket"):
            write(f"etc/systemd/system/{unit}.d/lab.conf", "[Unit]\nConditionPathIsReadWrite=\n")
        inside("systemctl", "--quiet", "mask", "systemd-udev-trigger.service")
