"""Debian as its own installer leaves it: the address in /etc/network/interfaces, set by ifupdown; no netplan."""

from __future__ import annotations

from pathlib import Path

from lab.shapes.shape import NETWORK, Machine, Shape, inside, write

# On a real machine udev starts a NIC that may be plugged in while it runs; in the lab nobody plugs.
PLUGGED = "[Service]\nExecStartPost=-/sbin/ifup -a --allow=hotplug\n"


def install(root: Path) -> None:
    inside(root, "dpkg", "--purge", "netplan.io")
    inside(root, "apt-get", "-qq", "-y", "autoremove", "--purge")
    inside(root, "systemctl", "--quiet", "disable", "systemd-networkd")
    inside(root, "systemctl", "--quiet", "enable", "networking")
    write(root, "etc/systemd/system/networking.service.d/lab.conf", PLUGGED)


def interfaces(machine: Machine) -> None:
    machine.write(
        "etc/network/interfaces",
        "# This file describes the network interfaces available on your system\n"
        "# and how to activate them. For more information, see interfaces(5).\n\n"
        "source /etc/network/interfaces.d/*\n\n"
        "# The loopback network interface\nauto lo\niface lo inet loopback\n\n"
        "# The primary network interface\n"
        f"allow-hotplug {machine.lan}\niface {machine.lan} inet static\n"
        f"\taddress {machine.address}/{machine.prefix}\n\tgateway {machine.profile.gateway}\n"
        "\t# dns-* options are implemented by the resolvconf package, if installed\n"
        f"\tdns-nameservers {machine.profile.gateway}\n",
    )


SHAPE = Shape(
    name="debian-ifupdown",
    meaning="Debian's own installer: the address in /etc/network/interfaces, no netplan",
    home=__file__,
    decides=NETWORK,
    packages=("ifupdown",),
    install=install,
    write=interfaces,
)
