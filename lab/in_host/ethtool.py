#!/usr/bin/python3
"""ethtool, simulated by the Motley lab, for what a network card does about magic packets: a lab's cards are cables
without such a setting. A card keeps it while its host is off, and its driver forgets it at a start (lab/host.py)."""

import sys
from pathlib import Path

KEPT = Path("/var/lib/simulated-nic")
"""A file for each armed card, named by its address; the lab's switch reads them (lab/wake_on_lan.py)."""


def main(words: list[str]) -> int:
    nic = Path("/sys/class/net") / (words[1] if words[:1] == ["-s"] else words[0] if words else "")
    if not words or (words[0].startswith("-") and words[0] != "-s") or not (nic / "address").exists():
        print("netlink error: no device matches name (offset 24)\nnetlink error: No such device", file=sys.stderr)
        return 75
    armed = KEPT / (nic / "address").read_text().strip()
    if words[0] == "-s" and words[2:3] == ["wol"]:
        if words[3:] == ["g"]:
            KEPT.mkdir(parents=True, exist_ok=True)
            armed.touch()
        else:
            armed.unlink(missing_ok=True)
            KEPT.rmdir() if KEPT.exists() and not any(KEPT.iterdir()) else None
        return 0
    print(f"Settings for {nic.name}:\n\tSupports Wake-on: pumbg\n\tWake-on: {'g' if armed.exists() else 'd'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
