"""What a run decided by itself, kept beside its checkpoints and obeyed from then on, whoever takes part.

Two GPUs and a CPU compute in fp32; when the CPU's machine dies, the two that are left must not turn to bf16.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from train.files import write_atomic
from train.plan.placement import decisions
from train.plan.settings.read_settings import RunConfig
from train.runlog.paths import DECIDED

STEPPING = "stepping"
"""Says where the optimizer computed last: a process that loads before it is in a group cannot see for whom it steps."""
NAMES = (*decisions.NAMES, "wire", "sync", "stage_speeds", "pipe_micro_batch", "cut_proven", STEPPING)
MICRO_BATCH = "micro_batch "
"""How a name begins that says whose micro-batch it is, and what it depends on."""
ALL_STREAMED = ", all streamed"
"""How the name of a micro-batch ends where layers of a streamed base were held on a card, and it ran out of memory."""


def read(config: RunConfig) -> dict[str, str]:
    """What is decided for this run, else for the one that it continues; empty where nothing is decided yet."""
    if config.resume == "never":
        return {}
    runs = [config.run] if config.resume == "auto" else [config.run, config.resume]
    for run in runs:
        try:
            facts = json.loads((config.checkpoint_folder(run) / DECIDED).read_text())
            return {name: str(facts[name]) for name in facts if name in NAMES or name.startswith(MICRO_BATCH)}
        except (OSError, ValueError):
            continue
    return {}


def obey(config: RunConfig, by_rank: Iterable[Mapping[str, str]]) -> tuple[RunConfig, list[str], dict[str, str]]:
    """The settings with what was decided in place of `auto`, why, and all that was decided; `by_rank` is what each rank
    has read."""
    kept: dict[str, str] = {}
    for of_rank in by_rank:
        kept = {**of_rank, **kept}
    filled: dict[str, Any] = {name: value for name, value in kept.items() if getattr(config, name, "") == "auto"}
    why = ", ".join(f"{name} {value}" for name, value in filled.items())
    return replace(config, **filled), [f"{why}: decided when the run began"] if why else [], kept


def stepping(on_processor: bool) -> str:
    return "processor" if on_processor else "device"


def keep(config: RunConfig, **decided: str) -> None:
    """Adds to what is known: some of it is measured only while it trains."""
    kept = read(replace(config, resume="auto"))
    if kept | decided == kept:
        return
    with contextlib.suppress(OSError):  # a full disk: the next checkpoint says so
        file = config.checkpoint_folder() / DECIDED
        write_atomic(file, (json.dumps(kept | decided, indent=1) + "\n").encode())
