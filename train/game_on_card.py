"""The game that runs on this machine's graphics card: a program that draws and holds much of its memory. Queries about
computing alone do not show games, so the whole state of the cards is read. Standard library alone: nodes get it."""

from __future__ import annotations

import re
import subprocess
from xml.etree import ElementTree

HELD_MB = 300.0
"""What windows on a screen do not take; a game takes more within seconds."""
DESKTOP = frozenset(
    "Xorg Xwayland X gnome-shell mutter kwin_wayland kwin_x11 plasmashell sway Hyprland weston cinnamon xfwm4 muffin "
    "gnome-control-center gdm-x-session sddm-greeter picom".split()
)


def running_game() -> str:
    try:
        done = subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return drawing(done.stdout)


def drawing(xml: bytes | str) -> str:
    """The first of the processes that draw (G, C+G) that holds much memory and is not the desktop itself."""
    try:
        processes = list(ElementTree.fromstring(xml).iter("process_info"))  # noqa: S314 - the driver's own
    except ElementTree.ParseError:
        return ""
    for process in processes:
        kind, command = (process.findtext(key, "").strip() for key in ("type", "process_name"))
        program = program_of(command)
        if "G" in kind and program not in DESKTOP and held_mb(process.findtext("used_memory", "")) >= HELD_MB:
            return program[:40] or "a program"
    return ""


def program_of(command: str) -> str:
    """Without its folders and arguments."""
    # Proton runs programs of Windows, whose folders have spaces in their names.
    of_windows = re.match(r"(?i).*?\.exe\b", command) if "\\" in command else None
    path = of_windows[0] if of_windows else command.partition(" ")[0]
    return path.replace("\\", "/").rpartition("/")[2]


def held_mb(text: str) -> float:
    """Some drivers do not say: then any program but the desktop's counts."""
    number = text.strip().partition(" ")[0]
    return float(number) if number.replace(".", "", 1).isdigit() else HELD_MB
