# MIT License, see LICENSE
"""What is known of NVIDIA's driver: the catalogue of branches and package names, and what a node reports of its own."""

from __future__ import annotations

from typing import TypedDict

from ..train.nvidia_driver import LoadedDriver
from .graphics import Card

ByKind = dict[str, list[str]]
"""open and closed → names of packages."""


class Branch(TypedDict):
    branch: str
    least: str
    """The oldest driver that carries the CUDA of this torch."""
    cuda: str
    torch: str
    set: str


class NamesOfAll(TypedDict):
    name: str
    of: str
    version: str
    desktop: ByKind
    server: ByKind
    dkms: ByKind


class PackageNames(NamesOfAll, total=False):
    """How a distribution calls the driver's packages (motley_gpu_driver/vars/main/driver_and_torch_catalogue.yml)."""

    signed: str
    bare: ByKind
    drawn: list[str]
    modules_need: str
    pin: str


class Catalogue(TypedDict):
    branches: list[Branch]
    names: list[PackageNames]
    driver_packages: str
    desktop_packages: str
    kernel_images: str
    kernel_packages: str


class Installed(TypedDict, total=False):
    """The driver on a node's disk; empty where there is none."""

    version: str
    open: bool
    packaged: bool
    complete: bool
    module: str


class Kernel(TypedDict):
    running: str
    next: str
    metapackages: list[str]
    tracks: list[str]
    headers: list[str]


class Smi(TypedDict):
    cards: list[dict[str, str]]
    trouble: str


class NamedCard(Card, total=False):
    name: str


class GpuLook(TypedDict, total=False):
    """What gpu_info reports."""

    names: str
    source: str
    offered: dict[str, dict[str, str]]
    """What the package sources have: branch → open and closed → version."""
    leads: dict[str, str]
    """Branches whose packages are only a name for another's."""
    cards: list[NamedCard]
    switched_off: str
    installed: Installed
    module_signer: str
    loaded: LoadedDriver
    loaded_signer: str | None
    smi: Smi
    nouveau: bool
    secure_boot: bool
    kernel: Kernel
    draws: list[str]
    desktop: bool
    passphrase: str
    boot_id: str
    apt_trouble: str


class NodeLook(GpuLook, total=False):
    """A node's report, with what the inventory says of its card."""

    title: str
    file: str | None
