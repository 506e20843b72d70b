"""What an Ubuntu installer leaves on a machine and Debian's base lacks: a kernel that is followed, mokutil, hardware.

One small read-only layer for each choice of kernel, laid between the base and the host's own disk, made with real dpkg.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from lab import deb, fake_packages, layer, repository
from lab.base import Base
from lab.deb import Deb
from lab.shell import LabError, run

UNIT = """\
[Unit]
Description=Lab: simulated hardware answers in /sys and /proc, and its driver loads
DefaultDependencies=no
After=systemd-journald.service lab-sysfs-net.service
Before=sysinit.target systemd-networkd.service systemd-udevd.service
ConditionPathExists=/run/simulated-hardware/card.json
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/lib/motley-lab/hardware boot
[Install]
WantedBy=sysinit.target
"""


def packages(track: str) -> list[Deb]:
    kernels = [kernel for kernel in fake_packages.CURRENT.kernels if kernel.track == track]
    if not kernels:
        known = ", ".join(kernel.track for kernel in fake_packages.CURRENT.kernels)
        raise LabError(f"no simulated kernel '{track}' in the lab; there are: {known}", code=2)
    return [*fake_packages.kernel_packages(kernels[0]), _hardware(), _mokutil()]


def _hardware() -> Deb:
    units = "lib/systemd/system"
    return Deb(
        name="motley-lab-hardware",
        version="1",
        summary="the hardware of a lab host",
        files={
            "usr/lib/motley-lab/hardware": (fake_packages.PROGRAMS / "kernel.py").read_text(),
            "usr/local/sbin/ethtool": (fake_packages.PROGRAMS / "ethtool.py").read_text(),
            "usr/local/sbin/modprobe": (fake_packages.PROGRAMS / "modprobe.sh").read_text(),
            "usr/local/bin/dmesg": (fake_packages.PROGRAMS / "dmesg.sh").read_text(),
            "usr/local/bin/lsblk": (fake_packages.PROGRAMS / "lsblk.sh").read_text(),
            f"{units}/motley-lab-hardware.service": UNIT,
        },
        scripts={"postinst": "systemctl --quiet enable motley-lab-hardware.service\n"},
    )


def _mokutil() -> Deb:
    program = (fake_packages.PROGRAMS / "mokutil.sh").read_text()
    files = {"usr/bin/mokutil": program}
    return Deb(name="mokutil", version=f"0.6.0{fake_packages.MARK}", summary="Secure Boot state", files=files)


def ensure(base: Base, track: str) -> Path:
    """The layer for this base and this choice of kernel, built once."""
    made = [(deb.control(package), package.files, package.scripts) for package in packages(track)]
    return layer.ensure([base.root], f"installed-{track}", repr(made).encode(), lambda root: _install(root, track))


def _install(root: Path, track: str) -> None:
    with tempfile.TemporaryDirectory(dir=root) as folder:
        files = repository.build(packages(track), Path(folder))
        names = [f"/{file.relative_to(root)}" for file in files]
        run("chroot", root, "dpkg", "--force-unsafe-io", "-i", *names)
