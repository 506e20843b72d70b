"""What of a machine and its environment must agree with the other nodes', this package's own source too; and one hash
for what lies in a folder.

Files alone are read: importing torch takes seconds, and may fail on the very node whose versions are wanted. Standard
library alone: Ansible's modules read it as well (plugins/module_utils/train is a link to here).
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from . import nvidia_driver
from .files import file_hash


def of_machine(sites: Iterable[Path], packages: Iterable[str], root: Path = Path("/")) -> dict[str, str | None]:
    """What is not there is None. `sites`: the folders of the environment's packages. `root` stands for the machine's
    file system, so that a test can show it another machine."""
    sites = list(sites)
    installed = installed_packages(sites)
    return {
        "os": first_match(root / "etc/os-release", r'PRETTY_NAME="?([^"\n]+)'),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{name: installed.get(name.replace("-", "_").lower()) for name in packages},
        "cuda": torch_cuda(sites),
        "nccl": next((version for name, version in installed.items() if name.startswith("nvidia_nccl_cu")), None),
        **nvidia_driver.versions(root),
    }


def installed_packages(sites: Iterable[Path]) -> dict[str, str]:
    """The version of each package; of one that lies in several folders the first, as Python imports it."""
    versions: dict[str, str] = {}
    for path in (path for site in sites for path in site.glob("*.dist-info")):
        name, _, version = path.name.removesuffix(".dist-info").partition("-")
        versions.setdefault(name.lower(), version)
    return versions


def torch_cuda(sites: Iterable[Path]) -> str | None:
    """The CUDA that torch was built for, from its version file."""
    files = [file for site in sites if (file := site / "torch/version.py").is_file()]
    return first_match(files[0], r"(?m)^cuda\b.*=\s*['\"]([\d.]+)['\"]") if files else None


def content_hash(folder: Path, memo: Mapping[str, list[Any]] | None = None) -> str | None:
    """The hash of the contents; with a memo of the relay from the hashes in it, where nothing has changed since, else
    from names and sizes alone, which the hash says."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(".motley-")]
    hashes = [file_hash(path) if memo is None else _remembered(memo, folder, path) for path in files]
    by_size = "" in hashes
    digest = hashlib.sha256()
    for path, content in zip(files, hashes, strict=True):
        digest.update(f"{path.relative_to(folder)} {path.stat().st_size} {'' if by_size else content}\n".encode())
    return digest.hexdigest()[:12] + (" (by size)" if by_size else "") if files else None


def _remembered(memo: Mapping[str, list[Any]], folder: Path, path: Path) -> str:
    """The file's hash in the memo; empty where the file is another one since."""
    size, changed_ns, content = memo.get(str(path.relative_to(folder)), [None, None, ""])
    status = path.stat()
    return str(content) if (size, changed_ns) == (status.st_size, status.st_mtime_ns) else ""


def package_files(folder: Path) -> list[Path]:
    """All that travels to the nodes."""
    return sorted(path for kind in ("*.py", "*.yml", "*.txt") for path in folder.rglob(kind))


def package_hash(folder: Path) -> str:
    """Nodes with different code must not train together."""
    digest = hashlib.sha256()
    for file in package_files(folder):
        digest.update(f"{file.relative_to(folder)} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def first_match(file: Path, pattern: str) -> str | None:
    try:
        match = re.search(pattern, file.read_text(errors="replace"))
    except OSError:
        return None
    return match[1].strip() if match else None
