"""Debian packages made from a description in Python: many variants of one template are data, not folders."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab.shell import run

REMARK = "Simulated by the Motley lab: it drives no hardware and holds nobody else's code."


@dataclass(frozen=True, kw_only=True, slots=True)
class Deb:
    name: str
    version: str
    summary: str
    depends: tuple[str, ...] = ()
    recommends: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    replaces_all: str = ""
    """A name that all packages of a kind provide, so that only one of them can be installed."""
    files: Mapping[str, bytes | str] = field(default_factory=dict)
    """Path without the leading slash → content; what starts with #! becomes executable."""
    scripts: Mapping[str, str] = field(default_factory=dict)
    """postinst, prerm, … → shell lines."""

    @property
    def file_name(self) -> str:
        return f"{self.name}_{self.version}_all.deb"


def control(package: Deb) -> str:
    kind = (package.replaces_all,) if package.replaces_all else ()
    lists = {
        "Depends": package.depends,
        "Recommends": package.recommends,
        "Provides": (*package.provides, *kind),
        "Conflicts": kind,
        "Replaces": kind,
    }
    fields = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": "all",
        "Maintainer": "Motley lab <lab@localhost>",
        "Section": "misc",
        "Priority": "optional",
        **{key: ", ".join(names) for key, names in lists.items() if names},
        "Description": f"simulated: {package.summary}\n {REMARK}",
    }
    return "".join(f"{key}: {value}\n" for key, value in fields.items())


def build(package: Deb, folder: Path) -> Path:
    """Write the package's .deb file into the folder."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as tree:
        root = Path(tree)
        root.chmod(0o755)  # it becomes the package's own ./
        for path, content in package.files.items():
            _write(root / path, content)
        _write(root / "DEBIAN/control", control(package))
        for name, lines in package.scripts.items():
            _write(root / "DEBIAN" / name, f"#!/bin/sh\nset -e\n{lines}")
        target = folder / package.file_name
        run("dpkg-deb", "--root-owner-group", "-Znone", "--build", root, target)
    return target


def _write(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(data)
    path.chmod(0o755 if data.startswith(b"#!") else 0o644)
