"""Ubuntu 24.04 Desktop: NetworkManager sets up the network and keeps what its owner chose in netplan's folder.

The saved connections are written as libnetplan writes what NetworkManager hands to it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

from lab.shapes.shape import NETWORK, Machine, Shape, inside, write

RENDERER = "network:\n  version: 2\n  renderer: NetworkManager\n"
RADIO = "wlp9s0"
WIFI_PASSWORD = "the owner's secret"  # noqa: S105  of a network that is nowhere
SAVED_WIFI = ("Home", "Grandma's place", "Office 5 GHz")


def install(root: Path) -> None:
    write(root, "usr/lib/netplan/00-network-manager-all.yaml", RENDERER, 0o600)
    inside(root, "systemctl", "--quiet", "disable", "systemd-networkd")
    inside(root, "systemctl", "--quiet", "enable", "NetworkManager")
    inside(root, "systemctl", "--quiet", "mask", "NetworkManager-wait-online")  # nobody answers on the spare NIC


def connections(machine: Machine) -> None:
    _save(machine, "Wired connection 1", _wired)
    for name in SAVED_WIFI:
        _save(machine, name, _wifi)


def _save(machine: Machine, name: str, settings: Callable[[Machine, str, str], str]) -> None:
    key = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.{machine.spec.name}.motley-lab.invalid"))
    machine.write(f"etc/netplan/90-NM-{key}.yaml", settings(machine, name, key), 0o600)


def _wired(machine: Machine, name: str, key: str) -> str:
    address, gateway = f"{machine.address}/{machine.prefix}", machine.profile.gateway
    return f"""\
network:
  version: 2
  ethernets:
    NM-{key}:
      renderer: NetworkManager
      match:
        name: "{machine.lan}"
      addresses:
      - "{address}"
      nameservers:
        addresses:
        - {gateway}
      dhcp6: true
      ipv6-address-generation: "stable-privacy"
      wakeonlan: true
      networkmanager:
        uuid: "{key}"
        name: "{name}"
        passthrough:
          connection.timestamp: "1732260000"
          ethernet._: ""
          ipv4.address1: "{address},{gateway}"
          ipv4.method: "manual"
          ipv6.ip6-privacy: "-1"
          proxy._: ""
"""


def _wifi(_: Machine, name: str, key: str) -> str:
    return f"""\
network:
  version: 2
  wifis:
    NM-{key}:
      renderer: NetworkManager
      match:
        name: "{RADIO}"
      dhcp4: true
      dhcp6: true
      ipv6-address-generation: "stable-privacy"
      access-points:
        "{name}":
          auth:
            key-management: "psk"
            password: "{WIFI_PASSWORD}"
          networkmanager:
            uuid: "{key}"
            name: "{name}"
            passthrough:
              connection.timestamp: "1732260000"
              wifi-security.auth-alg: "open"
              ipv6.ip6-privacy: "-1"
              proxy._: ""
      networkmanager:
        uuid: "{key}"
        name: "{name}"
"""


SHAPE = Shape(
    name="desktop-2404",
    meaning="Ubuntu 24.04 Desktop: NetworkManager, connections saved as 90-NM-UUID.yaml, three of them Wi-Fi",
    home=__file__,
    decides=NETWORK,
    packages=("network-manager",),
    install=install,
    write=connections,
)
