"""Graphics switched to the processor's own (prime-select intel): the NVIDIA card is off, the bus does not show it."""

from __future__ import annotations

from pathlib import Path

from lab.shapes.shape import Shape, inside


def switch(root: Path) -> None:
    inside(root, "prime-select", "intel")


SHAPE = Shape(
    name="igpu-only",
    meaning="graphics switched to the processor's own (prime-select intel): the NVIDIA card is off",
    home=__file__,
    simulated=("nvidia-prime",),
    install=switch,
)
