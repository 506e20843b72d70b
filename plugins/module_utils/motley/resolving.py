"""Whether names lead anywhere on this node: one that did before a change of the network is to do so after it."""

from __future__ import annotations

import ipaddress
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# What Motley and the system itself fetch from.
OFTEN = ("pypi.org", "huggingface.co", "deb.debian.org", "archive.ubuntu.com")
SOURCES = ("etc/apt/sources.list", "etc/apt/sources.list.d/*.list", "etc/apt/sources.list.d/*.sources")


def candidates(root: Path = Path("/")) -> list[str]:
    """Names that the node's own apt asks for come first; none that /etc/hosts answers."""
    texts = [file.read_text(errors="replace") for pattern in SOURCES for file in sorted(root.glob(pattern))]
    lines = [line for text in texts for line in text.splitlines() if not line.lstrip().startswith("#")]
    found = [name for line in lines for name in re.findall(r"\b(?:https?|ftp)://(?:[^/\s@]*@)?([^/:\s\]]+)", line)]
    hosts = root / "etc/hosts"
    known = set(hosts.read_text(errors="replace").split()) if hosts.is_file() else set()
    names = [name for name in dict.fromkeys([*found, *OFTEN]) if name not in known and not is_address(name)]
    return names[:6]


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def resolves(name: str, timeout_s: float = 3) -> bool:
    """Whether a name resolves, as a program that starts now would see it."""
    try:
        done = subprocess.run(["getent", "ahosts", name], capture_output=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def a_name() -> str:
    """One that leads somewhere now; empty where none does (no resolver, no internet)."""
    names = candidates()
    with ThreadPoolExecutor(len(names) or 1) as pool:
        return next((name for name, found in zip(names, pool.map(resolves, names), strict=True) if found), "")
