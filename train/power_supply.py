"""The power supplies of a machine, as its kernel lists them. Standard library alone: nodes get it."""

from __future__ import annotations

from pathlib import Path

SUPPLIES = Path("/sys/class/power_supply")
FACTS = ("type", "scope", "online", "status", "capacity")


def supplies(root: Path = SUPPLIES) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The machine's own batteries, and what charges them. A mouse has a battery too: the kernel says of it that it is a
    device's."""
    listed = [{name: _read(folder / name) for name in FACTS} for folder in sorted(root.glob("*"))]
    own = [supply for supply in listed if supply["scope"] != "Device"]
    batteries = [supply for supply in own if supply["type"] == "Battery"]
    return batteries, [supply for supply in own if supply["type"] != "Battery"]


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
