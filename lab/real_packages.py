"""Real packages for a layer: fetched from the suite's mirror by this machine's apt, for the system in a folder."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from lab import base
from lab.shell import fetch


def download(suite: str, root: Path, names: Sequence[str], folder: Path) -> list[Path]:
    """What these packages need and the system in `root` lacks: the files, in `folder`."""
    for part in ("state/lists/partial", "cache/archives/partial", "sources"):
        (folder / part).mkdir(parents=True)
    _write_sources(suite, folder / "sources")
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::status": root / "var/lib/dpkg/status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::SourceList": "/dev/null",
        "Dir::Etc::SourceParts": folder / "sources",
        "APT::Install-Recommends": "false",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "root",  # the folder is nobody else's
        **({"Acquire::Check-Valid-Until": "false"} if suite == base.UNRELEASED else {}),
    }
    apt = ["apt-get", "-qq", "-y", *(f"-o{name}={value}" for name, value in settings.items())]
    what = f"{', '.join(names)} could not be fetched ({suite})"
    fetch(what, *apt, "update", timeout_s=600)
    fetch(what, *apt, "--download-only", "install", *names, timeout_s=600)
    return sorted((folder / "cache/archives").glob("*.deb"))


def _write_sources(suite: str, folder: Path) -> None:
    source = base.sources(suite)
    if source.startswith("/"):
        shutil.copy(source, folder)
    else:
        (folder / "lab.list").write_text(source + "\n")
