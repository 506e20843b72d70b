"""A profile says which hosts a lab has and what each is: read from profiles/NAME.yml, checked, never changed."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lab.shell import LabError
from train.layout import HOME

FOLDER = Path(__file__).parent / "profiles"
USER = "user"
CLUSTER_HOME = HOME.replace("~", f"/home/{USER}")
PASSWORD = "lab-password"  # noqa: S105  the hosts live for minutes in a network nobody else can reach


@dataclass(frozen=True, kw_only=True, slots=True)
class HostSpec:
    name: str
    machine: str
    """What it stands for, in words."""
    address: str
    """What bootstrap is to give it."""
    installed_address: str
    """What the installer gave it."""
    nics: tuple[str, ...]
    """Names of its network cards; the first is the cable to the LAN, a second one is plugged in but not set up."""
    cpu_percent: int
    """Share of one core, when limits are on."""
    rate_mbit: float = 1000
    delay_ms: float = 0.1
    card: str = "none"
    """A name of hardware/cards.yml."""
    integrated_graphics: str = ""
    """PCI id of the graphics in its processor, where it has some: not to be taken for a card."""
    laptop: bool = False
    kernel: str = "generic"
    """generic or generic-hwe-24.04: which kernels its installer chose to follow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    name: str
    network: ipaddress.IPv4Network
    gateway: str
    controller: str
    stranger: str
    hosts: tuple[HostSpec, ...] = field(default_factory=tuple)

    def host(self, name: str) -> HostSpec:
        for spec in self.hosts:
            if spec.name == name:
                return spec
        raise LabError(f"no host '{name}' in profile {self.name}: {', '.join(h.name for h in self.hosts)}", code=2)


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yml"))


def load(name: str) -> Profile:
    path = FOLDER / f"{name}.yml"
    if not path.exists():
        raise LabError(f"no lab profile '{name}'; there are: {', '.join(names())}", code=2)
    return parse(name, yaml.safe_load(path.read_text()))


def parse(name: str, data: dict[str, Any]) -> Profile:
    try:
        network = ipaddress.IPv4Network(data["network"])
        hosts = tuple(
            HostSpec(name=host, **{**settings, "nics": tuple(settings["nics"])})
            for host, settings in data["hosts"].items()
        )
        profile = Profile(
            name=name,
            network=network,
            gateway=data["gateway"],
            controller=data["controller"],
            stranger=data["stranger"],
            hosts=hosts,
        )
    except (KeyError, TypeError, ValueError) as wrong:
        raise LabError(f"lab profile {name}.yml: {wrong}", code=2) from None
    _check(profile)
    return profile


def _check(profile: Profile) -> None:
    used: dict[str, str] = {}
    wanted = [(profile.gateway, "gateway"), (profile.controller, "controller"), (profile.stranger, "stranger")]
    for host in profile.hosts:
        wanted += [(host.address, f"{host.name} address"), (host.installed_address, f"{host.name} installed_address")]
    for address, owner in wanted:
        if ipaddress.IPv4Address(address) not in profile.network:
            raise LabError(f"lab profile {profile.name}.yml: {owner} {address} is outside {profile.network}", code=2)
        if address in used:
            raise LabError(f"lab profile {profile.name}.yml: {address} is both {used[address]} and {owner}", code=2)
        used[address] = owner
