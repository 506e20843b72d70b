"""A controller with another Python than this machine's: a base system of the lab, with an environment made in it.

Nothing is installed here, and what a run leaves there goes with it: the base and its environment are only read.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from lab import base, layer
from lab.shell import run
from tests.support.cluster import REPOSITORY

REQUIREMENTS = REPOSITORY / "requirements"
ENV = "/opt/controller"
# As root in a mount namespace of its own: base and environment below an empty disk in memory, this machine's
# repository and the test's folder at their own places.
ENTER = r"""
set -e
mount -t tmpfs controller /mnt && cd /mnt && mkdir up work root
mount -t overlay controller -o "lowerdir=$1,upperdir=up,workdir=work" root
mount --rbind /dev root/dev && mount -t proc proc root/proc && mount -t tmpfs tmp root/tmp
for seen in "$2" "$3"; do mkdir -p "root$seen" && mount --bind "$seen" "root$seen"; done
cd root && shift 3
exec chroot . sh -c 'cd "$1" && shift && exec "$@"' - "$PWD_THERE" "$@"
"""

HERE = [f"PWD_THERE={REPOSITORY}", f"PYTHONPATH={REPOSITORY}"]  # the second as .venv's motley.pth


@dataclass(frozen=True, slots=True)
class Seat:
    layers: str
    """What lies over what, as overlayfs is told."""

    def python(self, folder: Path) -> list[str | Path]:
        """The words in front of a program of Python, run by that controller with this folder in sight."""
        enter = ["unshare", "--mount", "--propagation", "private", "env", *HERE, "bash", "-c"]
        return [*enter, ENTER, "-", self.layers, REPOSITORY, folder, f"{ENV}/bin/python"]


def seat(suite: str, locked: str) -> Seat:
    """Built once for this base and this lock, then a minute less."""
    system = base.locate(suite)
    if not base.built(system):
        base.build(system)

    def install(root: Path) -> None:
        _install(system, root, locked)

    recipe = b"".join((REQUIREMENTS / name).read_bytes() for name in (f"{locked}.txt", "make_env.sh"))
    above = layer.ensure([system.root], locked, recipe + Path(__file__).read_bytes(), install)
    return Seat(f"{above}:{system.root}")


def _install(system: base.Base, root: Path, locked: str) -> None:
    python = run("chroot", root, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    kept = run(sys.executable, REQUIREMENTS / "wheelhouse.py", python, locked, timeout_s=600)
    for place, folder in (("mnt", Path(json.loads(kept)["folder"])), ("srv", REQUIREMENTS), ("media", system.offered)):
        run("mount", "--bind", folder, root / place)
    venv = "dpkg --unpack /media/python3-pip-whl_* /media/python3-setuptools-whl_* /media/python3*-venv_*"
    run("chroot", root, "sh", "-c", f"{venv} 2>&1 && dpkg --configure --pending", timeout_s=300)
    offline = ["env", "PIP_NO_INDEX=1", "PIP_FIND_LINKS=/mnt", "PIP_NO_CACHE_DIR=1"]
    run("chroot", root, *offline, "/srv/make_env.sh", ENV, locked, timeout_s=600)
