"""Machines as their installers leave them: combined by name, put under any profile, on all hosts or on one.

    python -m lab up --shape debian-root
    python -m lab up --shape desktop-2404,lived-in --shape gpu-worker-2=debian-ifupdown

Each shape is a module here. What it does to every machine alike is a read-only layer, built once by chroot; shapes that
are combined lie on one another in the order of SHAPES.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lab import deb, fake_packages, layer, real_packages, repository
from lab.base import Base
from lab.deb import Deb
from lab.shapes import debian_ifupdown, debian_root, desktop_2404, encrypted, igpu_only, lived_in, rented, server_2604
from lab.shapes import shape as parts
from lab.shapes.shape import Machine, Shape
from lab.shell import LabError, outcome, run

SHAPES: dict[str, Shape] = {
    module.SHAPE.name: module.SHAPE
    for module in (server_2604, desktop_2404, debian_ifupdown, debian_root, encrypted, igpu_only, rented, lived_in)
}
"""In the order in which they lie on one another: who sets up the network comes first."""

SPEAKING = (
    "sudo coreutils apt dpkg passwd login libpam-modules util-linux grep sed tar findutils libc-l10n systemd".split()
)
DPKG = ("dpkg", "--force-unsafe-io", "-i")

__all__ = ["SHAPES", "Machine", "Shape", "layers", "of", "suite_of", "wanted"]


def of(names: Iterable[str]) -> tuple[Shape, ...]:
    """The shapes of these names, each once, in the order in which they lie on one another."""
    asked = list(names)
    if unknown := [name for name in asked if name not in SHAPES]:
        raise LabError(f"no shape '{unknown[0]}'; there are: {', '.join(SHAPES)}", code=2)
    chosen = tuple(shape for name, shape in SHAPES.items() if name in asked)
    for what in {shape.decides for shape in chosen if shape.decides}:
        rivals = [shape.name for shape in chosen if shape.decides == what]
        if len(rivals) > 1:
            raise LabError(f"{' and '.join(rivals)} both say {what}: choose one for a host", code=2)
    return chosen


def wanted(words: Sequence[str], hosts: Sequence[str]) -> dict[str, tuple[Shape, ...]]:
    """`NAME[,NAME]` for all hosts, `HOST=NAME[,NAME]` for one in place of that: host → its shapes."""
    for_all: list[str] = []
    for_one: dict[str, list[str]] = {}
    for word in words:
        host, one, names = word.rpartition("=")
        if one and host not in hosts:
            raise LabError(f"--shape {word}: no host '{host}'; there are: {', '.join(hosts)}", code=2)
        (for_one.setdefault(host, []) if one else for_all).extend(name for name in names.split(",") if name)
    return {host: of(for_one.get(host, for_all)) for host in hosts}


def suite_of(shapes: Iterable[Shape], default: str) -> str:
    return next((shape.suite for shape in shapes if shape.suite), default)


def layers(base: Base, below: tuple[Path, ...], shapes: Iterable[Shape]) -> tuple[Path, ...]:
    """What lies under the host's own disk: each shape's layer on those below it, uppermost first."""
    for shape in shapes:
        if shape.has_layer:
            below = (_ensure(base, below, shape), *below)
    return below


def _ensure(base: Base, below: tuple[Path, ...], shape: Shape) -> Path:
    sources = (shape.home, real_packages.__file__, parts.__file__)
    made = [(deb.control(package), package.files, package.scripts) for package in simulated(shape)]
    recipe = repr((shape.packages, made)).encode() + b"".join(Path(file).read_bytes() for file in sources)
    return layer.ensure(below, f"shape-{shape.name}", recipe, lambda root: _install(base, root, shape))


def _install(base: Base, root: Path, shape: Shape) -> None:
    with tempfile.TemporaryDirectory(dir=root) as folder:
        files = real_packages.download(base.suite, root, shape.packages, Path(folder)) if shape.packages else []
        files += repository.build(simulated(shape), Path(folder))
        if files:
            names = [f"/{file.relative_to(root)}" for file in files]
            run("chroot", root, "env", "DEBIAN_FRONTEND=noninteractive", *DPKG, *names, timeout_s=300)
        if shape.language:
            _translate([*base.offered.glob("*.deb"), *files], root, shape.language)
    shape.install(root)


def _translate(found: Iterable[Path], root: Path, language: str) -> None:
    """The words of the base's programs, which a base leaves out."""
    unpack = 'dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" --wildcards "./usr/share/locale/$3/*"'
    for file in found:
        if file.name.split("_")[0] in SPEAKING:
            outcome("sh", "-c", unpack, "-", file, root, language)  # one without words is an error for tar


def simulated(shape: Shape) -> list[Deb]:
    return [package for package in fake_packages.packages(fake_packages.CURRENT) if package.name in shape.simulated]


def conditions(shapes: Iterable[Shape]) -> Mapping[str, bool]:
    return {name: value for shape in shapes for name, value in shape.hardware.items()}
