"""This package's own source: what of it travels to the nodes, and the hash by which nodes are compared.

Standard library alone: an Ansible module reads it as well (plugins/module_utils/train is a link to here).
"""

from __future__ import annotations

import hashlib
from pathlib import Path


def package_files(folder: Path) -> list[Path]:
    """All that travels to the nodes."""
    return sorted(path for kind in ("*.py", "*.yml", "*.txt") for path in folder.rglob(kind))


def package_hash(folder: Path) -> str:
    """Nodes with different code must not train together."""
    digest = hashlib.sha256()
    for file in package_files(folder):
        digest.update(f"{file.relative_to(folder)} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]
