"""A node's disk, processor, power and graphics cards, as they are this moment."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TypedDict

from ..train import nvidia_smi
from ..train.game_on_card import running_game
from ..train.power_supply import supplies
from .apt_lock import holder
from .driver_packages import xids
from .files import existing, read
from .graphics import Card, nvidia_cards, output, switched_off

ASKED = (
    "name pci.bus_id temperature.gpu utilization.gpu memory.total memory.used power.draw power.limit"
    " power.default_limit persistence_mode clocks.sm clocks.max.sm"
).split()
REASONS, OLD_REASONS = "clocks_event_reasons.active", "clocks_throttle_reasons.active"
WRITTEN_MB = 16
WINDOW_S = 0.3


# -- disk and processor ----------------------------------------------------------------------------------------


class Disk(TypedDict):
    path: str
    free_gb: float
    whole_gb: float
    free_files: int
    read_only: bool


class Processor(TypedDict):
    share: float
    load: float
    cores: int


class Power(TypedDict):
    battery: bool
    percent: str
    on_mains: bool
    lid: str


class Gpus(TypedDict):
    cards: list[Card]
    switched_off: str
    shown: list[dict[str, str]]
    trouble: str
    programs: list[str]
    xid: str
    drawing: str


def disk(home: Path) -> dict[str, Disk]:
    disks: dict[str, Disk] = {}
    for name, path in (("home", existing(home)), ("system", Path("/var"))):
        now = os.statvfs(path)
        disks[name] = {
            "path": str(path),
            "free_gb": now.f_bavail * now.f_frsize / 1e9,
            "whole_gb": now.f_blocks * now.f_frsize / 1e9,
            "free_files": now.f_favail if now.f_files else -1,  # some file systems do not count
            "read_only": bool(now.f_flag & os.ST_RDONLY),
        }
    return disks


def disk_speed(home: Path) -> dict[str, float]:
    """One file of some megabytes, written until it is on the disk."""
    block = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir=existing(home)) as file:
        start = time.monotonic()
        for _ in range(WRITTEN_MB):
            file.write(block)
        file.flush()
        os.fdatasync(file.fileno())
        took_s = time.monotonic() - start
    return {"write_mb_s": WRITTEN_MB * 1.048576 / took_s}


def processor() -> Processor:
    """How much of one core a program gets that never waits; the better of two moments."""
    shares = []
    for _ in range(2):
        wall, used = time.monotonic(), time.process_time()
        while time.monotonic() - wall < WINDOW_S:
            pass
        shares.append((time.process_time() - used) / (time.monotonic() - wall))
    return {"share": round(max(shares), 3), "load": os.getloadavg()[0], "cores": len(os.sched_getaffinity(0))}


# -- power -----------------------------------------------------------------------------------------------------


def power() -> Power:
    batteries, chargers = supplies()
    mains = [one["online"] == "1" for one in chargers if one["type"] in ("Mains", "USB")]
    lids = [read(path).split()[-1] for path in Path("/proc/acpi/button/lid").glob("*/state") if read(path)]
    return {
        "battery": bool(batteries),
        "percent": next((one["capacity"] for one in batteries), ""),
        "on_mains": any(mains) if mains else not any(one["status"] == "Discharging" for one in batteries),
        "lid": lids[0] if lids else "",
    }


# -- graphics cards --------------------------------------------------------------------------------------------


def gpu() -> Gpus:
    gpus: Gpus = {
        "cards": nvidia_cards(),
        "switched_off": switched_off(),
        "shown": [],
        "trouble": "",
        "programs": [],
        "xid": "",
        "drawing": "",
    }
    if not gpus["cards"]:
        return gpus
    gpus["xid"] = last_xid()
    try:
        gpus["shown"] = shown()
        gpus["programs"] = programs()
        gpus["drawing"] = running_game()
    except nvidia_smi.Silent as why:
        gpus["trouble"] = str(why)
    return gpus


def shown() -> list[dict[str, str]]:
    try:
        return [row | {"reasons": row[REASONS]} for row in nvidia_smi.table("gpu", [*ASKED, REASONS])]
    except nvidia_smi.Silent:
        return [row | {"reasons": row[OLD_REASONS]} for row in nvidia_smi.table("gpu", [*ASKED, OLD_REASONS])]


def programs() -> list[str]:
    try:
        rows = nvidia_smi.table("compute-apps", ["pid", "process_name", "used_memory"])
    except nvidia_smi.Silent:
        return []
    return [", ".join(row.values()) for row in rows]


def last_xid() -> str:
    """The number of the last fault that the driver reported in this boot; empty where none, or not ours to read."""
    found = xids(output("journalctl", "-k", "-b", "-q", "--no-pager"))
    return found[-1] if found else ""


# -- small things ----------------------------------------------------------------------------------------------


def apt() -> dict[str, str | None]:
    """The program that has apt's locks; None where only root may ask."""
    try:
        return {"holder": holder()}
    except PermissionError:
        return {"holder": None}
