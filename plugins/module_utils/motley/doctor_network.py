"""A node's names, network cards and routes to its peers, as its own kernel and resolver see them."""

from __future__ import annotations

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypedDict

from .files import read
from .lan import Link, ip, who_has

NET = Path("/sys/class/net")


class Names(TypedDict):
    hostname: str
    lead_to: dict[str, str]
    loopback: list[str]


class Nic(TypedDict):
    name: str
    mac: str
    addresses: list[str]
    mtu: int
    carrier: bool
    mbit: int
    duplex: str
    wireless: bool
    ethernet: bool


class Network(TypedDict):
    nic: str
    links: list[Nic]
    routes: dict[str, dict[str, str]]
    also_has_address: str | None


def names(cluster: dict[str, str]) -> Names:
    """What every name of the cluster leads to here, as a program would see it."""
    own = socket.gethostname()
    return {
        "hostname": own,
        "lead_to": lead_to(list(cluster)),
        "loopback": loopback_names({own, *cluster}),
    }


def lead_to(wanted: list[str]) -> dict[str, str]:
    """All at once: a name server that does not answer takes its time for every name."""
    with ThreadPoolExecutor(max(1, len(wanted))) as pool:
        return dict(zip(wanted, pool.map(first_address, wanted)))  # noqa: B905  Python 3.9 has no strict=


def loopback_names(wanted: set[str]) -> list[str]:
    """The wanted names that /etc/hosts gives 127.…: which of two lines wins differs between resolvers."""
    lines = [line.split("#")[0].split() for line in read(Path("/etc/hosts")).splitlines()]
    return sorted({name for words in lines if words and words[0].startswith("127.") for name in words[1:]} & wanted)


def first_address(name: str) -> str:
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return ""


def look(address: str, others: dict[str, str]) -> Network:
    links = [link_of(link) for link in ip("address", "show") if link["ifname"] != "lo"]
    nic = next((link["name"] for link in links if address in bare(link)), "")
    return {
        "nic": nic,
        "links": links,
        "routes": {name: route_to(other) for name, other in others.items()},
        "also_has_address": somebody_else(nic, address),
    }


def bare(link: Nic) -> list[str]:
    return [entry.split("/")[0] for entry in link["addresses"]]


def link_of(link: Link) -> Nic:
    folder = NET / link["ifname"]
    return {
        "name": link["ifname"],
        "mac": link.get("address", ""),
        "addresses": [f"{a['local']}/{a['prefixlen']}" for a in link.get("addr_info", []) if a["family"] == "inet"],
        "mtu": link["mtu"],
        "carrier": read(folder / "carrier") == "1",
        "mbit": number(read(folder / "speed")),
        "duplex": read(folder / "duplex"),
        "wireless": (folder / "wireless").exists(),
        "ethernet": read(folder / "type") == "1",
    }


def route_to(address: str) -> dict[str, str]:
    """The NIC that the kernel uses for it, and the address that it shows."""
    with contextlib.suppress(Exception):
        route = ip("route", "get", address)[0]
        return {"nic": str(route.get("dev", "")), "source": str(route.get("prefsrc", ""))}
    return {"nic": "", "source": ""}


def somebody_else(nic: str, address: str) -> str | None:
    """The hardware address of another machine that answers for ours (needs root); None where it could not be asked."""
    if not nic:
        return ""
    try:
        return who_has(nic, address, timeout_s=0.6)
    except PermissionError:
        return None


def number(text: str) -> int:
    """0 where the driver does not report it (Wi-Fi, bridges)."""
    try:
        return max(0, int(text))
    except ValueError:
        return 0
