"""The lab's LAN: a bridge in a namespace of its own, and machines plugged into it by veth cables.

The controller is a machine on that LAN too, in its own namespace: what it sends cannot leave the lab either.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.place import Place
from lab.profile import HostSpec, Profile
from lab.shell import outcome, run

BRIDGE = "br0"
# A second NIC on the same LAN would answer for the first one's address, as Linux does: it gets a switch of its own.
SPARE_BRIDGE = "br1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cable:
    """One machine's connection to the switch."""

    switch: str
    port: str
    namespace: str
    mac: str

    @property
    def nic(self) -> str:
        """What the machine calls this NIC now: a machine may rename it, the hardware address stays."""
        for link in links(self.namespace):
            if link.get("address") == self.mac:
                return str(link["ifname"])
        return ""


def namespaces() -> list[str]:
    return [line.split()[0] for line in run("ip", "netns", "list").splitlines() if line.strip()]


def links(namespace: str) -> list[dict[str, Any]]:
    return list(json.loads(run("ip", "-json", "-n", namespace, "address", "show") or "[]"))


def addresses(namespace: str) -> list[str]:
    """Global IPv4 addresses that the machine has now."""
    return [
        entry["local"]
        for link in links(namespace)
        for entry in link.get("addr_info", [])
        if entry.get("family") == "inet" and entry.get("scope") == "global"
    ]


def build_switch(place: Place, profile: Profile) -> None:
    """Bridge, controller and stranger; hosts are plugged in as they are created."""
    run("ip", "netns", "add", place.switch)
    batch(
        place.switch,
        "link set lo up",
        *(f"link add {bridge} type bridge forward_delay 0 mcast_snooping 0" for bridge in (BRIDGE, SPARE_BRIDGE)),
        *(f"link set {bridge} up" for bridge in (BRIDGE, SPARE_BRIDGE)),
    )
    # The gateway is a plain address of the controller's machine: it routes nowhere.
    _plug_in_simple(place, place.controller, "ctl", profile, [profile.controller, profile.gateway])
    _plug_in_simple(place, place.stranger, "stranger", profile, [profile.stranger])
    names = [f"{host.address} {host.name}" for host in profile.hosts]
    for namespace in (place.controller, place.stranger):
        folder = Path("/etc/netns") / namespace
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names]) + "\n")
        (folder / "resolv.conf").write_text("# the lab has no DNS\n")


def _plug_in_simple(place: Place, namespace: str, port: str, profile: Profile, wanted: list[str]) -> None:
    run("ip", "netns", "add", namespace)
    batch(place.switch, f"link add {port} type veth peer name eth0 netns {namespace}")
    batch(place.switch, f"link set {port} master {BRIDGE} up")
    batch(
        namespace,
        "link set lo up",
        "link set eth0 up",
        *(f"address add {address}/{profile.network.prefixlen} dev eth0" for address in wanted),
    )


def host_cables(place: Place, profile: Profile, spec: HostSpec) -> list[Cable]:
    index = profile.hosts.index(spec) + 1
    return [
        Cable(
            switch=place.switch,
            port=f"h{index}n{number}",
            namespace=place.host_namespace(spec.name),
            mac=f"02:77:00:{number:02x}:00:{index:02x}",
        )
        for number in range(len(spec.nics))
    ]


def plug_in_host(place: Place, profile: Profile, spec: HostSpec) -> None:
    namespace = place.host_namespace(spec.name)
    run("ip", "netns", "add", namespace)
    for number, (cable, nic) in enumerate(zip(host_cables(place, profile, spec), spec.nics, strict=True)):
        bridge = SPARE_BRIDGE if number else BRIDGE
        batch(
            place.switch,
            f"link add {cable.port} type veth peer name {nic} address {cable.mac} netns {namespace}",
            f"link set {cable.port} master {bridge} up",
        )


def unplug_host(place: Place, profile: Profile, spec: HostSpec) -> None:
    """Cables first: the kernel takes those of a deleted namespace away only later."""
    for cable in host_cables(place, profile, spec):
        outcome("ip", "-n", cable.switch, "link", "delete", cable.port)
    if place.host_namespace(spec.name) in namespaces():
        run("ip", "netns", "delete", place.host_namespace(spec.name))


def batch(namespace: str, *commands: str) -> None:
    run("ip", "-n", namespace, "-batch", "-", stdin="\n".join(commands) + "\n")


def set_cable(cable: Cable, *, plugged: bool) -> None:
    batch(cable.switch, f"link set {cable.port} {'up' if plugged else 'down'}")


def cable_plugged(cable: Cable) -> bool:
    state = json.loads(run("ip", "-json", "-n", cable.switch, "link", "show", cable.port))
    return "UP" in state[0]["flags"]
