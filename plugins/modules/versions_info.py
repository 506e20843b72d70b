#!/usr/bin/python
# MIT License, see LICENSE
"""Every version of a node that must or may agree with the others'. Reads files only: importing torch takes seconds."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import time
from pathlib import Path

from ansible.module_utils.motley import env_files
from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.relay import read_memo, sha256_of
from ansible.module_utils.train import nvidia_driver
from ansible.module_utils.train.package import package_hash

DOCUMENTATION = r"""
module: versions_info
short_description: Read all versions of a node at once; what is not there is null
description:
  - Reads the versions of system, driver, packages, models and data sets from files; starts no Python.
  - Changes nothing.
options: {
  "home": {"type": "path", "required": true, "description": "The cluster's folder on the node"},
  "packages": {"type": "list", "elements": "str", "required": true,
    "description": "Python packages to return the versions of"},
  "full": {"type": "bool", "default": false, "description": "Read all files, whatever their times say"}
}
"""
RETURN = r"""
versions: {type: dict, returned: always, description: Key to version or hash; null where there is none}
"""


def main() -> None:
    module = module_of(DOCUMENTATION)
    start, params = time.monotonic(), module.params
    found = collect(Path(params["home"]), params["packages"], full=params["full"], write=not module.check_mode)
    module.exit_json(changed=False, versions=found, took_s=round(time.monotonic() - start, 2))


def collect(home: Path, packages: list[str], *, full: bool = False, write: bool = True) -> dict[str, str | None]:
    installed, code = installed_packages(home / "env"), home / "code/train"
    return {
        "os": first_match(Path("/etc/os-release"), r'PRETTY_NAME="?([^"\n]+)'),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "environment": environment(home / "env", full=full, write=write),
        **{name: installed.get(name.replace("-", "_").lower()) for name in packages},
        "cuda": torch_cuda(home / "env"),
        "nccl": next((version for name, version in installed.items() if name.startswith("nvidia_nccl_cu")), None),
        **nvidia_driver.versions(),
        "train": package_hash(code) if code.is_dir() else None,
        **{f"model {path.name}": content_hash(path, full=full) for path in folders(home / "models/base")},
        **{f"data {path.name}": content_hash(path, full=full) for path in folders(home / "data/processed")},
    }


def installed_packages(env: Path) -> dict[str, str]:
    found = {}
    for path in env.glob("lib/python*/site-packages/*.dist-info"):
        name, _, version = path.name.removesuffix(".dist-info").partition("-")
        found[name.lower()] = version
    return found


def environment(env: Path, *, full: bool, write: bool) -> str | None:
    """Its lock, and what is no longer as it was installed."""
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
        content = sha256_of(path).hexdigest() if full else known[2] if whole else ""
        digest.update(f"{name} {status.st_size} {content}\n".encode())
    return digest.hexdigest()[:12] + ("" if whole else " (by size)") if files else None


def first_match(file: Path, pattern: str) -> str | None:
    try:
        found = re.search(pattern, file.read_text(errors="replace"))
    except OSError:
        return None
    return found[1].strip() if found else None


if __name__ == "__main__":
    main()
