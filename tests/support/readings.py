"""Readings of a healthy trio, as the doctor's modules give them; tests spoil a copy."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from console.doctor.readings_and_findings import NodeReadings, Readings

NAMES = ("head", "left", "right")
ADDRESSES = {name: f"10.0.0.{place}" for place, name in enumerate(NAMES, 1)}
EXPECTED = {"subnet": "10.0.0.0/24", "disk_gb": 20.0, "skew_s": 10.0, "firewall": True, "gpu_driver": True}
LINK = {
    "reached": "", "rtt_ms": 0.3, "jitter_ms": 0.05, "loss_percent": 0.0, "full_packets": True,
    "mbit_to": 940.0, "mbit_from": 935.0,
}  # fmt: skip
FOLLOWER = {"reached": "", "full_packets": True}
CARD = {
    "name": "NVIDIA GeForce RTX 4070", "pci.bus_id": "00000000:01:00.0", "temperature.gpu": "38",
    "utilization.gpu": "0", "memory.total": "8188", "memory.used": "12", "power.draw": "12.00", "power.limit": "[N/A]",
    "power.default_limit": "[N/A]", "persistence_mode": "Disabled", "clocks.sm": "210", "clocks.max.sm": "2610",
    "reasons": "0x0000000000000001",
}  # fmt: skip


def lan_card(address: str, **other: Any) -> dict[str, Any]:
    nic = {"name": "enp3s0", "mac": "02:00:00:00:00:01", "addresses": [f"{address}/24"], "mtu": 1500}
    return nic | {"carrier": True, "mbit": 1000, "duplex": "full", "wireless": False, "ethernet": True} | other


DOCKER = lan_card("172.17.0.1", name="docker0", addresses=["172.17.0.1/16"], mbit=0, mtu=9000)
SPARE = lan_card("", name="enp9s0", addresses=[], carrier=False, mbit=0)


def look(name: str) -> dict[str, Any]:
    address = ADDRESSES[name]
    others = [other for other in NAMES if other != name]
    return {
        "root": True,
        "home": "/home/user/ai-cluster",
        "took": {"names": 0.1, "gpu": 1.5},
        "names": {"hostname": name, "lead_to": dict(ADDRESSES), "loopback": []},
        "network": {
            "nic": "enp3s0",
            "links": [lan_card(address), DOCKER, SPARE],
            "routes": {other: {"nic": "enp3s0", "source": address} for other in others},
            "also_has_address": "",
        },
        "clock": {"skew_s": 0.4},
        "disk": {
            place: {"path": path, "free_gb": 200.0, "whole_gb": 500.0, "free_files": 10**6, "read_only": False}
            for place, path in (("home", "/home/user/ai-cluster"), ("system", "/var"))
        },
        "disk_speed": {"write_mb_s": 400.0},
        "processor": {"share": 0.97, "load": 0.2, "cores": 8},
        "power": {"battery": name == "left", "percent": "100", "on_mains": True, "lid": "open"},
        "gpu": {"cards": [{"bus": "0000:01:00.0", "lost": False}], "shown": [dict(CARD)], "trouble": "",
                "programs": [], "xid": ""},
        "apt": {"holder": ""},
        "files": {"exists": True, "torch": True, "interface": "enp3s0", "adapter_bytes": 0},
        "phases": [],
        "units": {"motley-run.path": {"phase": "run", "enabled": "enabled", "active": "active"}},
        "firewall": {"kind": "nft", "on": True, "friends": [*ADDRESSES.values(), "10.0.0.9"], "gone": []},
        "runs": {"on": False, "run": "", "state": "", "agents": [], "orphans": [], "wanted": False,
                 "unit": "inactive", "result": "success"},
    }  # fmt: skip


VERSIONS = {
    "python": "3.12.3", "environment": "abc123", "torch": "2.13.0", "train": "def456", "driver": "580.95.05",
    "driver_library": "580.95.05", "driver_on_disk": "580.95.05", "kernel": "6.8", "os": "Ubuntu",
}  # fmt: skip


def node(name: str) -> NodeReadings:
    place = NAMES.index(name)
    links = {other: dict(LINK if NAMES.index(other) > place else FOLLOWER) for other in NAMES if other != name}
    together = {"megabytes": 19.0, "backend": "gloo", "world": 3, "seconds": 0.2, "pairs": {"0-1": 0.1, "0-2": 0.12}}
    return NodeReadings(
        name=name,
        address=ADDRESSES[name],
        expected=dict(EXPECTED),
        contact={"state": "known", "address": ADDRESSES[name], "tried": [ADDRESSES[name]]},
        look=look(name),
        links=links,
        versions=dict(VERSIONS),
        collective=together if name == "head" else None,
        took={"contact": 0.3, "reach": 0.2, "links": 3.0, "collective": 8.0},
    )


def healthy() -> Readings:
    return Readings(nodes=[node(name) for name in NAMES])


def with_node(readings: Readings, name: str, **other: Any) -> Readings:
    return replace(readings, nodes=[replace(n, **other) if n.name == name else n for n in readings.nodes])


def with_part(readings: Readings, name: str, part: str, **other: Any) -> Readings:
    """A part of a node's look with other values."""
    (found,) = [n for n in readings.nodes if n.name == name]
    seen = copy.deepcopy(found.look) or {}
    seen[part] = {**seen[part], **other} if other else None
    return with_node(readings, name, look=seen)


def with_links(readings: Readings, pairs: list[tuple[str, str]], **other: Any) -> Readings:
    """The measurement of these pairs (in the nodes' order) with other values."""
    for one, peer in pairs:
        (found,) = [n for n in readings.nodes if n.name == one]
        links = copy.deepcopy(dict(found.links or {}))
        links[peer] |= other
        readings = with_node(readings, one, links=links)
    return readings
