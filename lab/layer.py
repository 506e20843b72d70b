"""Heavy software as a read-only layer under a lab's hosts, for tests that are not about installing it."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lab import disk, real_packages
from lab.base import Base
from lab.place import CACHE
from lab.profile import CLUSTER_HOME, USER
from lab.shell import run
from plugins.module_utils.motley import env_files
from train.cache import build_once

REQUIREMENTS = Path(__file__).parent.parent / "requirements"
ENV = f"{CLUSTER_HOME}/env"
SLURM = ("slurmctld", "slurmd", "slurm-client", "munge")


def train(base: Base) -> Path:
    """The locked CPU training environment, where a bootstrapped node has it."""
    locks = b"".join((REQUIREMENTS / name).read_bytes() for name in ("node-cpu.txt", "torch-cpu.txt"))
    return ensure([base.root], "train", locks, _install_train)


def slurm(base: Base) -> Path:
    """The suite's own Slurm, with nothing configured; lab/slurm.py does that."""
    recipe = repr((base.suite, SLURM)).encode()
    return ensure([base.root], "slurm", recipe, lambda root: _install_slurm(base, root))


LAYERS: dict[str, Callable[[Base], Path]] = {"train": train, "slurm": slurm}


def ensure(below: Sequence[Path], name: str, recipe: bytes, install: Callable[[Path], None]) -> Path:
    """The folder to lay over those below: built once for this recipe, by `install` into the root that it is given."""
    lower = ":".join(str(folder) for folder in below)
    digest = hashlib.sha256(recipe + Path(__file__).read_bytes() + lower.encode()).hexdigest()[:12]
    folder = CACHE / f"layer-{name}-{digest}"
    return build_once(folder, lambda unfinished: _fill(unfinished, lower, install)) / "upper"


def _fill(unfinished: Path, lower: str, install: Callable[[Path], None]) -> None:
    for part in ("upper", "work", "root"):
        (unfinished / part).mkdir()
    try:
        over = f"lowerdir={lower},upperdir={unfinished}/upper,workdir={unfinished}/work"
        run("mount", "-t", "overlay", "motley-layer", "-o", over, unfinished / "root")
        install(unfinished / "root")
    finally:
        disk.unmount_below(unfinished)


def _install_train(root: Path) -> None:
    python = run("chroot", root, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    kept = run(sys.executable, REQUIREMENTS / "wheelhouse.py", python, "node-cpu", timeout_s=1800)
    wheels = Path(json.loads(kept)["folder"])
    inside = root / "mnt"
    run("mount", "--bind", wheels, inside)
    names = (wheels / "WHEELS.txt").read_text().split()
    pip = next(name for name in names if name.startswith("pip-"))
    run("chroot", root, "python3", "-m", "venv", "--without-pip", ENV)
    install = (
        f"{ENV}/bin/python /mnt/{pip}/pip -qq --no-cache-dir --disable-pip-version-check install --no-index --no-deps"
    )
    run("chroot", root, *install.split(), *(f"/mnt/{name}" for name in names), timeout_s=900)
    record = _record_as_bootstrap_does(root, python)
    run("chroot", root, "chown", "-R", f"{USER}:{USER}", CLUSTER_HOME)
    env_files.look(root / ENV.lstrip("/"), record["packages"])


def _record_as_bootstrap_does(root: Path, python: str) -> dict[str, Any]:
    """What the phase python_env writes beside an environment: without it, it would not be taken for the locked one."""
    lock = run(sys.executable, REQUIREMENTS / "wheelhouse.py", "--id", python, "node-cpu").strip()
    env = root / ENV.lstrip("/")
    packages = sorted(
        path.name.removesuffix(".dist-info") for path in env.glob("lib/python*/site-packages/*.dist-info")
    )
    record = {"lock": lock, "python": python, "packages": packages, "made": "as a layer of the lab"}
    (env / "motley-env.json").write_text(json.dumps(record))
    return record


def _install_slurm(base: Base, root: Path) -> None:
    with tempfile.TemporaryDirectory(dir=root) as folder:
        files = real_packages.download(base.suite, root, SLURM, Path(folder))
        quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "dpkg", "--force-unsafe-io", "-i"]
        run("chroot", root, *quiet, *(f"/{file.relative_to(root)}" for file in files), timeout_s=300)
    # The packages of a host's kernel lie below: it must not forget them.
    shutil.rmtree(root.parent / "upper/var/lib/dpkg")
