"""The driver, on disk and in the kernel, and the key that this machine signs its module with."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from .driver_packages import numbers
from .files import read

LOADED = Path("/proc/driver/nvidia/version")
LIBRARIES = ("usr/lib/*-linux-gnu", "usr/lib/*-linux-gnu/nvidia/current", "usr/lib64", "usr/lib")
# Where Ubuntu and Debian keep the key that dkms signs modules with.
KEYS = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")


def on_disk(kernel: str = "", field: str = "version") -> str:
    """What modinfo tells of the module for that kernel, or the running one."""
    return run("/usr/sbin/modinfo", *(["-k", kernel] if kernel else []), "-F", field, "nvidia").stdout.strip()


def library() -> Path | None:
    """The newest that programs may load."""
    found = [file for folder in LIBRARIES for file in Path("/").glob(f"{folder}/libnvidia-ml.so.[0-9]*.*")]
    return max(found, key=lambda file: numbers(file.name), default=None)


def library_version(file: Path) -> str:
    return file.name.removeprefix("libnvidia-ml.so.")


def loaded() -> dict[str, Any]:
    """Its version, and whether it is the open one; empty where none is loaded."""
    text = read(LOADED)
    match = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)", text)
    return {"version": match[1], "open": "Open Kernel Module" in text} if match else {}


def own_key() -> str:
    return next((path for path in KEYS if Path(path).exists()), "")


def own_key_is_known() -> bool:
    """Whether the firmware knows the key that modules are signed with here."""
    return bool(own_key()) and "already enrolled" in run("mokutil", "--test-key", own_key()).stdout


def run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, "", f"{command[0]} is not installed")
