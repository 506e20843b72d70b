# MIT License, see LICENSE
"""Every version of a node that must or may agree with the others'. Reads files only: importing torch takes seconds."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from pathlib import Path

from ..train import nvidia_driver
from ..train.files import file_hash
from ..train.package import package_hash
from . import env_files, graphics
from .relay import read_memo


def collect(home: Path, packages: list[str], *, full: bool = False, write: bool = True) -> dict[str, str | None]:
    installed, code = installed_packages(home / "env"), home / "code/train"
    return {
        "os": first_match(Path("/etc/os-release"), r'PRETTY_NAME="?([^"\n]+)'),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "environment": environment(home / "env", full=full, write=write),
        **{name: installed.get(name.replace("-", "_").lower()) for name in packages},
        "cuda": torch_cuda(home / "env"),
        "nccl": next((version for name, version in installed.items() if name.startswith("nvidia_nccl_cu")), None),
        **nvidia_driver.versions(),
        **({"driver": "not loaded"} if card_without_driver() else {}),
        "train": package_hash(code) if code.is_dir() else None,
        **{f"model {path.name}": content_hash(path, full=full) for path in folders(home / "models/base")},
        **{f"data {path.name}": content_hash(path, full=full) for path in folders(home / "data/processed")},
    }


def card_without_driver() -> bool:
    """What has no card may do without a driver; a card that its owner has not switched off may not."""
    return not nvidia_driver.loaded() and bool(graphics.nvidia_cards()) and not graphics.switched_off()


def installed_packages(env: Path) -> dict[str, str]:
    found = {}
    for path in env.glob("lib/python*/site-packages/*.dist-info"):
        name, _, version = path.name.removesuffix(".dist-info").partition("-")
        found[name.lower()] = version
    return found


def environment(env: Path, *, full: bool, write: bool) -> str | None:
    """The environment's lock, and what is no longer as it was installed."""
    if not env.exists():
        return None
    try:
        record = json.loads((env / "motley-env.json").read_text())
    except (OSError, ValueError):
        return "not Motley's"
    drift = env_files.look(env, record["packages"], full=full, write=write)
    return f"{record['lock']}, {drift}" if drift else str(record["lock"])


def torch_cuda(env: Path) -> str | None:
    file = next(env.glob("lib/python*/site-packages/torch/version.py"), Path("/nonexistent"))
    return first_match(file, r"(?m)^cuda\b.*=\s*['\"]([\d.]+)['\"]")


def folders(parent: Path) -> list[Path]:
    return sorted(path for path in parent.glob("*") if path.is_dir() and not path.name.startswith("."))


def content_hash(folder: Path, *, full: bool) -> str | None:
    """From the hashes that the relay left there where nothing has changed since; else names and sizes say it."""
    memo = read_memo(folder)
    digest, whole = hashlib.sha256(), True
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(".motley-")]
    for path in files:
        name, status = str(path.relative_to(folder)), path.stat()
        known = memo.get(name, [None, None, ""])
        whole = whole and (full or known[:2] == [status.st_size, status.st_mtime_ns])
        content = file_hash(path) if full else known[2] if whole else ""
        digest.update(f"{name} {status.st_size} {content}\n".encode())
    return digest.hexdigest()[:12] + ("" if whole else " (by size)") if files else None


def first_match(file: Path, pattern: str) -> str | None:
    try:
        found = re.search(pattern, file.read_text(errors="replace"))
    except OSError:
        return None
    return found[1].strip() if found else None
