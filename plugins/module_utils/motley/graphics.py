"""A node's NVIDIA cards as its PCI bus has them, what they are called, and whether their owner switched them off."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TypedDict

from .files import read

NVIDIA, DISPLAY, FALLEN_OFF = "0x10de", "0x03", b"\xff\xff"
DEVICES = Path("/sys/bus/pci/devices")
DRIVER = Path("/proc/driver/nvidia/gpus")
BBSWITCH = Path("/proc/acpi/bbswitch")


class Card(TypedDict):
    bus: str
    device: str
    lost: bool
    """Fallen off the bus: it answers nothing."""


def nvidia_cards() -> list[Card]:
    """Graphics functions on the bus; sound and USB parts of a card are others."""
    cards: list[Card] = []
    for device in sorted(DEVICES.glob("*")):
        if read(device / "vendor") == NVIDIA and read(device / "class").startswith(DISPLAY):
            config = (device / "config").read_bytes() if (device / "config").exists() else b""
            chip = read(device / "device").removeprefix("0x")
            cards.append({"bus": device.name, "device": chip, "lost": config[:2] == FALLEN_OFF})
    return cards


def card_name(bus: str) -> str:
    """The card's name as the driver calls it, else as the list of PCI devices does; empty where neither knows it."""
    model = re.search(r"^Model:\s*(.+)", read(DRIVER / bus / "information"), re.MULTILINE)
    if model and "Unknown" not in model[1]:
        return model[1].strip()
    listed = re.search(r"^Device:\s*.*\[(.+)]", output("lspci", "-vmms", bus), re.MULTILINE)
    return listed[1] if listed else ""


def switched_off() -> str:
    """What its owner switched the card off with in favour of the processor's graphics; empty: it is on."""
    if output("prime-select", "query").strip() in ("intel", "amd"):
        return "prime-select"
    return "bbswitch" if read(BBSWITCH).endswith("OFF") else ""


def output(*command: str) -> str:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=10
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
