"""Simulated graphics cards: what a host's hardware answers, kept outside the host and changeable from there.

The folder that `plug_in` writes is bound into the host at /run/simulated-hardware; lab/in_host/kernel.py lays its
parts over /sys and /proc there, and the simulated nvidia-smi reads card.json. See docs/inside/lab.md.
"""

from __future__ import annotations

import json
import struct
import uuid
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lab.profile import HostSpec
from lab.shell import LabError

CARDS = Path(__file__).parent / "hardware" / "cards.yml"
BUS = "0000:01:00.0"
EFI_GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
DISPLAY, DISPLAY_3D, AUDIO, BRIDGE = "0x030000", "0x030200", "0x040300", "0x060000"
DESKTOP_CASE, NOTEBOOK = "3", "10"
CRYPT_NAME = "dm_crypt-0"
CRYPTTAB_LINE = f"{CRYPT_NAME} UUID=5fe3b6a1-0000-4000-8000-000000000000 none luks\n"
# What `lsblk --json` shows where an installer was asked to encrypt the disk: LVM in LUKS, /boot beside it.
ENCRYPTED_DISK = {
    "blockdevices": [
        {
            "name": "nvme0n1",
            "type": "disk",
            "mountpoints": [None],
            "children": [
                {"name": "nvme0n1p1", "type": "part", "mountpoints": ["/boot/efi"]},
                {"name": "nvme0n1p2", "type": "part", "mountpoints": ["/boot"]},
                {
                    "name": "nvme0n1p3",
                    "type": "part",
                    "mountpoints": [None],
                    "children": [
                        {
                            "name": CRYPT_NAME,
                            "type": "crypt",
                            "mountpoints": [None],
                            "children": [{"name": "ubuntu--vg-ubuntu--lv", "type": "lvm", "mountpoints": ["/"]}],
                        }
                    ],
                },
            ],
        }
    ]
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    title: str
    """The card's name as a person writes it into the inventory."""
    name: str
    """The card's name as nvidia-smi prints it."""
    pci_id: str
    memory_mib: int
    compute_capability: str
    power_limit_w: int
    needs_open_modules: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """What can happen to a machine's hardware; nothing has happened to a new one."""

    lost: bool = False
    """The card has fallen off the bus."""
    busy: bool = False
    """Somebody else computes on it."""
    hot: bool = False
    """It throttles."""
    on_battery: bool = False
    secure_boot: bool = False
    own_key: bool = False
    """Whether the firmware knows a key of its owner's, with which the node's own modules are signed."""
    encrypted: bool = False
    """Whether the root lies on an encrypted partition."""


NO_CARD = Card(title="none", name="", pci_id="", memory_mib=0, compute_capability="", power_limit_w=0)


@cache
def cards() -> dict[str, Card]:
    return {name: Card(**facts) for name, facts in yaml.safe_load(CARDS.read_text()).items()}


def card(spec: HostSpec) -> Card:
    if spec.card == "none":
        return NO_CARD
    if spec.card not in cards():
        raise LabError(f"{spec.name}: no simulated card '{spec.card}'; there are: {', '.join(cards())}", code=2)
    return cards()[spec.card]


# -- the folder ----------------------------------------------------------------------------------------------


def plug_in(hardware: Path, spec: HostSpec, **conditions: bool) -> None:
    _write(hardware, spec, Condition(**conditions))


def change(hardware: Path, spec: HostSpec, **changes: bool) -> None:
    """Let something happen to the hardware; programs in the host see it at once."""
    _write(hardware, spec, replace(condition(hardware), **changes))


def condition(hardware: Path) -> Condition:
    file = hardware / "condition.json"
    return Condition(**json.loads(file.read_text())) if file.exists() else Condition()


def _write(hardware: Path, spec: HostSpec, now: Condition) -> None:
    """Folders stay the same ones, for the host has them mounted; a file is whole at every moment."""
    for name, content in files(spec, now).items():
        path = hardware / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".json"):
            path.with_suffix(".new").write_bytes(content)
            path.with_suffix(".new").rename(path)
        else:
            path.write_bytes(content)


def files(spec: HostSpec, now: Condition) -> dict[str, bytes]:
    """Everything the hardware answers: path in the folder → content."""
    text = {
        "condition.json": json.dumps(asdict(now)),
        "card.json": json.dumps(_card_facts(spec, now)),
        "disks.json": json.dumps(ENCRYPTED_DISK) if now.encrypted else "",
        "dmi/id/chassis_type": (NOTEBOOK if spec.laptop else DESKTOP_CASE) + "\n",
        "dmi/id/sys_vendor": "Motley lab (simulated)\n",
        "dmi/id/product_name": f"{spec.machine}\n",
        "power_supply/README": "simulated by the Motley lab\n",
        "acpi/README": "simulated by the Motley lab\n",
    }
    if spec.laptop:
        text |= _battery(now) | {"acpi/button/lid/LID0/state": "state:      open\n"}
    made = {path: content.encode() for path, content in text.items()}
    # Four bytes of attributes, then the value.
    made[f"firmware/efi/efivars/SecureBoot-{EFI_GLOBAL}"] = bytes([6, 0, 0, 0, now.secure_boot])
    for bus, (ids, class_code) in _pci_devices(spec).items():
        made |= {f"pci/{bus}/{name}": data for name, data in pci_device(ids, class_code).items()}
    if now.lost:
        made[f"pci/{BUS}/config"] = b"\xff" * 64
    return made


def _card_facts(spec: HostSpec, now: Condition) -> dict[str, Any]:
    """What the simulated nvidia-smi reads; nothing where there is no card."""
    if spec.card == "none":
        return {}
    name = uuid.uuid5(uuid.NAMESPACE_DNS, f"{spec.name}.motley-lab.invalid")
    return {**asdict(card(spec)), **asdict(now), "bus_id": BUS, "uuid": f"GPU-{name}", "laptop": spec.laptop}


def _battery(now: Condition) -> dict[str, str]:
    charging = {"status": "Discharging" if now.on_battery else "Full", "capacity": "71" if now.on_battery else "100"}
    battery = {"type": "Battery", "present": "1", **charging}
    mains = {"type": "Mains", "online": "0" if now.on_battery else "1"}
    named = {f"power_supply/BAT0/{key}": value for key, value in battery.items()}
    named |= {f"power_supply/AC0/{key}": value for key, value in mains.items()}
    return {path: value + "\n" for path, value in named.items()}


# -- the bus -------------------------------------------------------------------------------------------------


def _pci_devices(spec: HostSpec) -> dict[str, tuple[str, str]]:
    """The card with its sound, and what could be taken for it: a processor's own graphics come from others."""
    devices = {"0000:00:00.0": ("8086:0000", BRIDGE)}
    if spec.integrated_graphics:
        devices["0000:00:02.0"] = (spec.integrated_graphics, DISPLAY)
    if spec.card != "none":
        devices[BUS] = (card(spec).pci_id, DISPLAY_3D if spec.laptop else DISPLAY)
        devices[BUS[:-1] + "1"] = ("10de:22bc", AUDIO)
    return devices


def pci_device(ids: str, class_code: str) -> dict[str, bytes]:
    """A folder of /sys/bus/pci/devices, as much of it as lspci and a script read."""
    vendor, device = (int(half, 16) for half in ids.split(":"))
    code = int(class_code, 16)
    # vendor, device, command, status, revision and class, cache line … header type, registers, subsystem, the rest
    head = struct.pack("<HHHHI4x", vendor, device, 0x0006, 0x0010, code << 8 | 0xA1)
    config = (head + bytes(24 + 4) + struct.pack("<HH", vendor, device)).ljust(64, b"\0")
    text = {
        "vendor": f"0x{vendor:04x}",
        "device": f"0x{device:04x}",
        "class": class_code,
        "revision": "0xa1",
        "subsystem_vendor": f"0x{vendor:04x}",
        "subsystem_device": f"0x{device:04x}",
        "irq": "0",
        "resource": "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 13),
        "modalias": f"pci:v{vendor:08X}d{device:08X}sv{vendor:08X}sd{device:08X}"
        f"bc{class_code[2:4]}sc{class_code[4:6]}i{class_code[6:8]}",
    }
    return {name: f"{value}\n".encode() for name, value in text.items()} | {"config": config}
