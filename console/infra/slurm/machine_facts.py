"""What slurm.conf says of a machine. Standard library alone."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import TypedDict

SPARE = 0.97
"""The share of the memory that is promised: Slurm takes a node out that has less than was promised."""


class Cores(TypedDict):
    sockets: int
    cores: int
    threads: int


class MachineFacts(Cores):
    memory_mb: int
    cards: list[dict[str, str]]


def facts() -> MachineFacts:
    memory_kb = int(re.search(r"MemTotal: +(\d+)", Path("/proc/meminfo").read_text())[1])  # type: ignore[index]
    return {
        **layout(Path("/proc/cpuinfo").read_text()),
        "memory_mb": int(memory_kb / 1024 * SPARE),
        "cards": cards(pci()),
    }


def layout(cpuinfo: str) -> Cores:
    """Sockets, cores of a socket, threads of a core; where the kernel does not tell, each processor is a core."""
    processors: list[tuple[str, ...]] = []
    for block in cpuinfo.strip().split("\n\n"):
        if not block.startswith("processor"):
            continue  # the last one of a Raspberry Pi is about its board
        ids = [re.search(rf"{key}\s*: (\d+)", block) for key in ("physical id", "core id")]
        processors.append(tuple(number[1] if number else str(len(processors)) for number in ids))
    sockets = len({socket for socket, _ in processors}) if "physical id" in cpuinfo else 1
    cores = len(set(processors))
    if len(processors) % cores or cores % sockets:
        sockets, cores = 1, len(processors)
    return {"sockets": sockets, "cores": cores // sockets, "threads": len(processors) // cores}


def pci() -> str:
    try:
        return subprocess.run(["lspci", "-mm", "-d", "10de:"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def cards(listed: str) -> list[dict[str, str]]:
    """In the order of the bus, in which the driver numbers its devices."""
    rows = [shlex.split(line) for line in listed.splitlines()]
    names = [row[3] for row in rows if re.match(r"VGA|3D", row[1])]
    return [{"type": type_of(name), "file": f"/dev/nvidia{place}"} for place, name in enumerate(names)]


def type_of(device: str) -> str:
    """Not the second word of nvidia-smi's name, "GeForce": three unlike cards would be one type."""
    sold = re.search(r"\[([^]]*)\]", device)
    name = (sold[1] if sold else device).split("/")[0]
    return re.sub(r"[^a-z0-9]", "", name.lower().replace("geforce", "")) or "gpu"
