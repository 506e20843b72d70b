"""Fetch the wheels of locked sets for a machine with another Python, or another processor:

    fetch_wheels.py [--machine=aarch64] FOLDER PYTHON SET [SET…]

    .venv/bin/python requirements/fetch_wheels.py wheels 3.13 node-cpu

Every wheel is checked against its lock's hash. WHEELS.txt, written last, lists what to install in which order.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement

HERE = Path(__file__).parent
# What a set needs beside its own lock: see make_env.sh.
UNHASHED = {"node-cpu": "torch-cpu", "vllm-cpu": "torch-cpu"}
CPU_INDEX = HERE / "torch-cpu-index.txt"
GLIBC = range(36, 4, -1)
"""2.36 is Debian 12's; any of them may be in a wheel's name, and pip takes none that is not named."""


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--machine", default=platform.machine())
    asked.add_argument("folder", type=Path)
    asked.add_argument("python")
    asked.add_argument("sets", nargs="+")
    args = asked.parse_args()
    folder, target = args.folder, (args.python, args.machine)
    folder.mkdir(parents=True, exist_ok=True)
    for name in args.sets:
        fetch(folder, *target, for_python((HERE / f"{name}.txt").read_text(), *target), hashed=True)
        if name in UNHASHED:
            wanted = for_python((HERE / f"{UNHASHED[name]}.txt").read_text(), *target)
            try:
                fetch(folder, *target, wanted, hashed=False, quiet=True)
            except subprocess.CalledProcessError:
                fetch(folder, *target, wanted, "--retries=2", f"--requirement={CPU_INDEX}", hashed=False)
    wheels = sorted(path.name for path in folder.glob("*.whl"))
    (folder / "WHEELS.txt").write_text("\n".join(wheels) + "\n")
    return 0


def for_python(lock: str, python: str, machine: str = platform.machine()) -> str:
    """The lock's lines that hold for that Python on Linux; pip itself would ask the Python that it runs on."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": machine,
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    kept = []
    for entry in lock.replace("\\\n", " ").splitlines():
        text, _, hashes = entry.partition(" --hash=")
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        wanted = Requirement(text.split(" #")[0].strip())
        if wanted.marker is None or wanted.marker.evaluate(environment):
            wanted.marker = None
            kept.append(f"{wanted} --hash={hashes}" if hashes else str(wanted))
    return "\n".join(kept) + "\n"


def fetch(
    folder: Path, python: str, machine: str, requirements: str, *more: str, hashed: bool, quiet: bool = False
) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(requirements)
        file.flush()
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", "download", "--no-deps"),
                *("--only-binary=:all:", "--implementation=cp", f"--python-version={python}"),
                *(f"--platform=manylinux_2_{version}_{machine}" for version in GLIBC),
                *(f"--platform=manylinux2014_{machine}", f"--platform=linux_{machine}"),
                *(["--require-hashes"] if hashed else []),
                *more,
                *("--dest", str(folder), "--requirement", file.name),
            ],
            check=True,
            stderr=subprocess.DEVNULL if quiet else None,
        )


if __name__ == "__main__":
    sys.exit(main())
