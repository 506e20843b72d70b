"""A disk that was encrypted at the installation: what lsblk and crypttab show of it. The real disk is the lab's."""

from __future__ import annotations

from lab import gpu
from lab.shapes.shape import Machine, Shape


def crypttab(machine: Machine) -> None:
    machine.write("etc/crypttab", gpu.CRYPTTAB_LINE)


SHAPE = Shape(
    name="encrypted",
    meaning="an encrypted disk: every start waits at its passphrase, as far as lsblk and crypttab say so",
    home=__file__,
    write=crypttab,
    hardware={"encrypted": True},
)
