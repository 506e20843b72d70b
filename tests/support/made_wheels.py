"""Small wheels as a project would publish them."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

WHEELHOUSE = Path(__file__).parents[2] / "requirements/wheelhouse.py"


def wheel(folder: Path, name: str, content: dict[str, bytes]) -> dict[str, dict[str, Any]]:
    """The wheel NAME in the folder, and its facts as the controller hands them on."""
    record = next(path for path in content if path.endswith(".dist-info/METADATA")).replace("METADATA", "RECORD")
    rows = "".join(f"{path},sha256={digest(data)},{len(data)}\n" for path, data in content.items())
    made = folder / name
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in {**content, record: f"{rows}{record},,\n".encode()}.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100755 if path.endswith(("large.bin", "old-way")) else 0o100644) << 16
            archive.writestr(entry, data, zipfile.ZIP_STORED if path.endswith(".txt") else zipfile.ZIP_DEFLATED)
    return {name: {"size": made.stat().st_size, "sha256": hashlib.sha256(made.read_bytes()).hexdigest()}}


def plain(folder: Path, name: str, version: str, **modules: bytes) -> dict[str, dict[str, Any]]:
    """A pure package NAME with these modules."""
    info = f"{name}-{version}.dist-info"
    content = {f"{name}/{module}.py": text for module, text in modules.items()} | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    return wheel(folder, f"{name}-{version}-py3-none-any.whl", content)


def uv(folder: Path) -> dict[str, dict[str, Any]]:
    """The real one, which puts the others down; the controller's cache has it."""
    kept = _wheelhouse()
    for name in kept["files"]:
        (folder / name).symlink_to(f"{kept['folder']}/{name}")
    return dict(kept["files"])


@functools.cache
def _wheelhouse() -> dict[str, Any]:
    command = [sys.executable, str(WHEELHOUSE), "{}.{}".format(*sys.version_info[:2]), "uv"]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
