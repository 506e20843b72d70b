"""The key that this machine signs the driver's module with."""

from __future__ import annotations

import subprocess
from pathlib import Path

# Where Ubuntu and Debian keep the key that dkms signs modules with.
KEYS = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")


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
