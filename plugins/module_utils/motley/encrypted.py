"""Whether a start waits at a passphrase: from `lsblk --json`, /etc/crypttab and the headers of LUKS. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypedDict


class CrypttabEntry(TypedDict):
    key: str
    options: list[str]


class BlockDevice(TypedDict, total=False):
    """A device as lsblk lists it; an old lsblk knows one mount point."""

    name: str
    type: str
    mountpoint: str | None
    mountpoints: list[str | None]
    children: list[BlockDevice]


class BlockDevices(TypedDict, total=False):
    blockdevices: list[BlockDevice]


NEEDED = ("/", "/usr", "/var", "/boot")
UNLOCKS_ITSELF = ("tpm2-device", "keyscript")
# Ubuntu's own encryption by TPM: no crypttab, these names.
UBUNTU_BY_TPM = ("ubuntu-data", "ubuntu-save")
WORDS = "its disk is encrypted: the start waits at its passphrase, at the machine"


def waits_for(tree: BlockDevices, crypttab: str, header_of: Callable[[str], str], clevis_at_start: bool) -> str:
    """The device whose passphrase somebody must type at the start; empty where nobody is waited for."""
    entries = crypttab_entries(crypttab)
    for crypt, parent, mounted in encrypted_devices(tree):
        entry = entries.get(crypt)
        if crypt.startswith(UBUNTU_BY_TPM) or not opened_at_start(entry, mounted):
            continue
        grub_asks = "/boot" in mounted or ("/" in mounted and not mounts(tree, "/boot"))
        itself = entry and unlocks_itself(entry)
        if grub_asks or not (itself or (clevis_at_start and "clevis" in header_of(parent))):
            return crypt
    return ""


def crypttab_entries(text: str) -> dict[str, CrypttabEntry]:
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return {
        row[0]: {"key": row[2] if len(row) > 2 else "none", "options": row[3].split(",") if len(row) > 3 else []}
        for row in rows
    }


def opened_at_start(entry: CrypttabEntry | None, mounted: set[str]) -> bool:
    return "noauto" not in entry["options"] if entry else bool(mounted & {*NEEDED})


def unlocks_itself(entry: CrypttabEntry) -> bool:
    return entry["key"] not in ("none", "-") or any(option.startswith(UNLOCKS_ITSELF) for option in entry["options"])


def encrypted_devices(tree: BlockDevices) -> Iterator[tuple[str, str, set[str]]]:
    """Each unlocked device: its name, the one it lies on, and what is mounted from it."""
    for parent, device in walk(tree.get("blockdevices", []), ""):
        if device.get("type") == "crypt":
            yield device["name"], f"/dev/{parent}", mounted_below(device)


def walk(devices: list[BlockDevice], parent: str) -> Iterator[tuple[str, BlockDevice]]:
    for device in devices:
        yield parent, device
        yield from walk(device.get("children", []), device["name"])


def mounted_below(device: BlockDevice) -> set[str]:
    own = device.get("mountpoints") or [device.get("mountpoint")]
    return {place for place in own if place}.union(*(mounted_below(child) for child in device.get("children", [])))


def mounts(tree: BlockDevices, place: str) -> bool:
    return any(place in mounted_below(device) for device in tree.get("blockdevices", []))
