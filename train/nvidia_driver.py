"""The NVIDIA driver of this machine, and which of two versions is the older one.

Standard library alone: Ansible's modules read it as well (plugins/module_utils/train is a link to here).
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TypedDict

LOADED = "proc/driver/nvidia/version"
LIBRARY = "libnvidia-ml.so."
LIBRARIES = ("usr/lib/*-linux-gnu", "usr/lib/*-linux-gnu/nvidia/current", "usr/lib64", "usr/lib")


def versions(root: Path = Path("/")) -> dict[str, str | None]:
    """The driver's versions as the running kernel has it, as the next start loads it, and as programs load its library.

    After an unattended upgrade these differ until the next boot, and CUDA refuses.
    """
    running, file = loaded(root).get("version"), library(root)
    return {
        "driver": running,
        "driver_on_disk": (on_disk() or None) if running or file else None,
        "driver_library": library_version(file) if file else None,
    }


class LoadedDriver(TypedDict, total=False):
    """Empty where none is loaded."""

    version: str
    open: bool
    """Whether it is the open kernel module."""


def loaded(root: Path = Path("/")) -> LoadedDriver:
    try:
        text = (root / LOADED).read_text(errors="replace")
    except OSError:
        return {}
    match = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)", text)
    return {"version": match[1], "open": "Open Kernel Module" in text} if match else {}


def on_disk(kernel: str = "", field: str = "version") -> str:
    """What modinfo prints of the module for that kernel, or the running one; empty where there is none."""
    command = ["/usr/sbin/modinfo", *(["-k", kernel] if kernel else []), "-F", field, "nvidia"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def library(root: Path = Path("/")) -> Path | None:
    """The newest library that programs may load."""
    libraries = [file for folder in LIBRARIES for file in root.glob(f"{folder}/{LIBRARY}[0-9]*.*")]
    return max(libraries, key=lambda file: numbers(file.name), default=None)


def library_version(file: Path) -> str:
    return file.name.removeprefix(LIBRARY)


def numbers(version: str) -> tuple[int, ...]:
    """What versions of drivers are compared by: 570.9 is older than 570.133."""
    return tuple(int(part) for part in re.findall(r"\d+", str(version)))


def older(version: str, than: str) -> bool:
    return numbers(version) < numbers(than)
