"""Options of sbatch as they are written: one each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from console.infra.slurm.job_files import options_of


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"motley_sbatch_options": options_of}
