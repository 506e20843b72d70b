"""Whether a start waits at a passphrase: from `lsblk --json`, /etc/crypttab and the headers of LUKS. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

NEEDED = ("/", "/usr", "/var", "/boot")
UNLOCKS_ITSELF = ("tpm2-device", "keyscript")
# Ubuntu's own encryption by TPM: no crypttab, these names.
UBUNTU_BY_TPM = ("ubuntu-data", "ubuntu-save")
WORDS = "its disk is encrypted: the start waits at its passphrase, at the machine"


def waits_for(tree: dict[str, Any], crypttab: str, header_of: Callable[[str], str], clevis_at_start: bool) -> str:
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


def crypttab_entries(text: str) -> dict[str, dict[str, Any]]:
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return {
        row[0]: {"key": row[2] if len(row) > 2 else "none", "options": row[3].split(",") if len(row) > 3 else []}
        for row in rows
    }


def opened_at_start(entry: dict[str, Any] | None, mounted: set[str]) -> bool:
    return "noauto" not in entry["options"] if entry else bool(mounted & {*NEEDED})


def unlocks_itself(entry: dict[str, Any]) -> bool:
    return entry["key"] not in ("none", "-") or any(option.startswith(UNLOCKS_ITSELF) for option in entry["options"])


def encrypted_devices(tree: dict[str, Any]) -> Iterator[tuple[str, str, set[str]]]:
    """Each unlocked device: its name, the one it lies on, and what is mounted from it."""
    for parent, device in walk(tree.get("blockdevices", []), ""):
        if device.get("type") == "crypt":
            yield device["name"], f"/dev/{parent}", mounted_below(device)


def walk(devices: list[dict[str, Any]], parent: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for device in devices:
        yield parent, device
        yield from walk(device.get("children", []), device["name"])


def mounted_below(device: dict[str, Any]) -> set[str]:
    own = device.get("mountpoints") or [device.get("mountpoint")]
    return {place for place in own if place}.union(*(mounted_below(child) for child in device.get("children", [])))


def mounts(tree: dict[str, Any], place: str) -> bool:
    return any(place in mounted_below(device) for device in tree.get("blockdevices", []))
