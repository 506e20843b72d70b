"""Debian's installer when it was given a password for root: no sudo, and the user is in no group."""

from __future__ import annotations

from pathlib import Path

from lab.profile import PASSWORD, USER
from lab.shapes.shape import Shape, inside


def install(root: Path) -> None:
    inside(root, "chpasswd", stdin=f"root:{PASSWORD}\n")
    # Whoever takes sudo away from its only user must say so; its group stays, Debian has it from the beginning.
    inside(root, "env", "SUDO_FORCE_REMOVE=yes", "dpkg", "--purge", "sudo")
    inside(root, "gpasswd", "--delete", USER, "sudo")


SHAPE = Shape(
    name="debian-root",
    meaning="Debian with a password for root: no sudo, the user is in no group",
    home=__file__,
    install=install,
)
