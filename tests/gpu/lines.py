"""All lines of the kit, in the order in which they are run."""

from __future__ import annotations

from tests.gpu import exact, exchange, kernels, large, leaving, memory, numbers, oom, pair, speed, staying, two, uses
from tests.gpu.line import Line

PARTS = (kernels, exact, memory, oom, exchange, two, large, leaving, staying, numbers, uses, speed, pair)
LINES: dict[str, Line] = {line.name: line for part in PARTS for line in part.LINES}
