"""A host's disk: a sparse image of its own on read-only layers, so it has a size, can be full, and resets at once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lab.shell import outcome, run

SIZE_GB = 40


@dataclass(frozen=True, slots=True)
class Disk:
    folder: Path

    @property
    def image(self) -> Path:
        return self.folder / "disk.img"

    @property
    def mounted_image(self) -> Path:
        return self.folder / "disk"

    @property
    def root(self) -> Path:
        """The host's / as seen from outside."""
        return self.folder / "root"

    def create(self) -> None:
        self.image.parent.mkdir(parents=True, exist_ok=True)
        self.image.unlink(missing_ok=True)
        self.image.touch()
        os.truncate(self.image, SIZE_GB << 30)
        # No journal: the real kernel lives on through a lab host's power cut, and the image is cheap to throw away.
        options = "-q -F -m 0 -i 65536 -O ^has_journal -E lazy_itable_init=1,nodiscard"
        run("mkfs.ext4", *options.split(), self.image)

    def mount(self, layers: list[Path]) -> None:
        """Mount / as the image on top of the layers, the first of which is the uppermost."""
        self.mounted_image.mkdir(parents=True, exist_ok=True)
        self.root.mkdir(exist_ok=True)
        run("mount", "-o", "loop,noatime", self.image, self.mounted_image)
        for part in ("upper", "work"):
            (self.mounted_image / part).mkdir(exist_ok=True)
        lower = ":".join(str(layer) for layer in layers)
        upper = f"upperdir={self.mounted_image}/upper,workdir={self.mounted_image}/work"
        run("mount", "-t", "overlay", f"motley-{self.folder.name}", "-o", f"lowerdir={lower},{upper}", self.root)

    def unmount(self) -> None:
        unmount_below(self.folder)


def mount_read_only(image: Path, at: Path) -> None:
    at.mkdir(parents=True, exist_ok=True)
    if not os.path.ismount(at):
        run("mount", "-o", "loop,ro", image, at)


def mounts_below(folder: Path) -> list[Path]:
    """Deepest first. Names with spaces do not occur here."""
    found = [Path(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    below = [path for path in found if path.is_relative_to(folder)]
    return sorted(below, key=lambda path: len(path.parts), reverse=True)


def unmount_below(folder: Path) -> None:
    for path in mounts_below(folder):
        if outcome("umount", path).returncode:  # a process that is just ending may still hold it
            run("umount", "--lazy", path)
