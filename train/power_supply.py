"""The power supplies of a machine, as its kernel lists them. Standard library alone: nodes get it."""

from __future__ import annotations

from pathlib import Path

SUPPLIES = Path("/sys/class/power_supply")
FACTS = ("type", "scope", "online", "status", "capacity")


def supplies(root: Path = SUPPLIES) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The machine's own batteries, and what charges them. A mouse has a battery too: the kernel says of it that it is a
    device's."""
    found = [{name: _read(folder / name) for name in FACTS} for folder in sorted(root.glob("*"))]
    own = [supply for supply in found if supply["scope"] != "Device"]
    return [one for one in own if one["type"] == "Battery"], [one for one in own if one["type"] != "Battery"]


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
