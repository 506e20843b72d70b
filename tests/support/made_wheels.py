"""Small wheels as a project would publish them."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path
from typing import Any


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


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
