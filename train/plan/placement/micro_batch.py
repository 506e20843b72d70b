"""How many rows a processor computes at a time, where nothing says it."""

from __future__ import annotations

ON_CPU = {"tokens": 2048, "numbers": 65536, "lines": 2048}


def on_cpu(row_length: int, unit: str = "tokens") -> tuple[int, str]:
    """How many rows at a time keep the cores busy, and why; more only cost memory."""
    most = ON_CPU[unit]
    return max(1, most // row_length), f"CPU: about {most:_} {unit} at a time, rows of {row_length}".replace("_", " ")
