"""Checkpoints: all that a run needs to continue, and the adapter in PEFT's own format. Safetensors and JSON only.

    step-N/  adapter_model.safetensors adapter_config.json    (full fine-tuning: model.safetensors config.json)
             optimizer.safetensors                            tensors named "WEIGHT|KIND"
             outer.safetensors                                sync: local's outer momentum, by weight
             state.json                                       step, best, settings, hashes
             manifest.json                                    SHA-256 of each file above; written last

A folder gets its name by one rename after everything in it is on disk. A checkpoint whose files do not match its
manifest (torn, tampered with) is passed over, and the one before it is used.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Required, TypedDict

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from train.files import file_hash, whole_folder, write_manifest
from train.models import lora_init as first_weights
from train.models.optimizer_step import Numbers, Trained, optimizer_state, set_optimizer_state
from train.models.weights import ADAPTER, WEIGHTS, Named, take_weights, trained_weights, write_weights
from train.runlog.event_types import Best

OUTER = "outer.safetensors"
WRITE_ERRORS = (OSError, SafetensorError)  # a full disk comes as either


class State(TypedDict, total=False):
    """state.json: what a run needs beside weights and optimizer to go on; between_steps.py fills it."""

    math: Required[Mapping[str, object]]
    """What decides the loss curve."""
    best: Required[Best | None]
    evaluated: int
    """The last step that was evaluated."""
    base: float | None
    newest: float | None
    metrics: Mapping[str, float]
    gains: Mapping[str, Any]
    """The fields of early_stop.Gains."""
    proven: int
    shares: Mapping[str, float]
    speeds: Mapping[str, float]
    total_steps: int
    warm_up: int
    scaler: Mapping[str, object] | None
    made: object
    """What the next step trains on, where it is made already: its recipe's."""
    local_steps: int
    adapter: str
    """The hash of the trained weights."""
    step: int
    optimizer: Numbers


@dataclass(frozen=True)
class Saved:
    """An intact checkpoint on disk."""

    folder: Path
    state: State

    @property
    def step(self) -> int:
        return int(self.state["step"])


def write(
    root: Path,
    step: int,
    model: nn.Module,
    trained: Trained,
    state: State,
    *,
    outer: Mapping[str, Tensor] | None = None,
    manifest: bool = True,
) -> Path:
    """One checkpoint under `root`, there completely or not at all. Whoever takes one without a manifest from there
    writes it: hashing gigabytes is not for a worker that must leave (train/engine/checkpoint_in_memory.py)."""
    target = root / f"step-{step}"
    for left in root.glob(".step-*"):  # by a killed process; they may be what fills the disk
        shutil.rmtree(left, ignore_errors=True)
    with whole_folder(target) as draft:
        write_weights(draft, model, trained.named)
        tensors, numbers = optimizer_state(trained.named, trained.optimizer)
        save_file({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, draft / "optimizer.safetensors")
        if outer:
            save_file({name: t.detach().cpu().contiguous() for name, t in outer.items()}, draft / OUTER)
        (draft / "state.json").write_text(json.dumps({**state, "step": step, "optimizer": numbers}, indent=1))
        if manifest:
            write_manifest(draft)
    return target


def intact(root: Path, step: int) -> Saved | None:
    folder = root / f"step-{step}"
    return None if damage(folder) else Saved(folder, json.loads((folder / "state.json").read_text()))


def newest_intact(root: Path) -> tuple[Saved | None, list[str]]:
    """The newest checkpoint that is whole, and what was wrong with newer ones."""
    problems: list[str] = []
    for step in reversed(steps(root)):
        folder = root / f"step-{step}"
        if problem := damage(folder):
            problems.append(f"{folder.name}: {problem}")
            continue
        return Saved(folder, json.loads((folder / "state.json").read_text())), problems
    return None, problems


def steps(root: Path) -> list[int]:
    numbers = (path.name.removeprefix("step-") for path in root.glob("step-*"))
    return sorted(int(number) for number in numbers if number.isdigit())


def damage(folder: Path) -> str:
    """Why a checkpoint cannot be trusted; empty where every file is as the manifest says."""
    try:
        manifest: dict[str, str] = json.loads((folder / "manifest.json").read_text())
        for name, expected in manifest.items():
            if file_hash(folder / name) != expected:
                return f"{name} is not what was written"
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "" if "state.json" in manifest else "state.json is missing"


def prune(root: Path, newest: int, keep: int, best_step: int | None) -> None:
    """Remove all but the last `keep` (a setting of every_run.py) and the best. What is newer than the newest was passed
    over when the run was resumed: it takes no good one's place."""
    for step in [step for step in steps(root) if step <= newest][:-keep]:
        if step != best_step:
            shutil.rmtree(root / f"step-{step}", ignore_errors=True)


def load(saved: Saved, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    named = trained_weights(model)
    load_weights(saved, named)
    load_moments(saved, named, optimizer)


def load_moments(saved: Saved, named: Named, optimizer: torch.optim.Optimizer) -> None:
    set_optimizer_state(named, optimizer, load_file(saved.folder / "optimizer.safetensors"), saved.state["optimizer"])


def load_weights(saved: Saved, named: Named) -> None:
    file = next(file for name in (ADAPTER, WEIGHTS) if (file := saved.folder / name).exists())
    take_weights(file, named, own=first_weights.without)


def outer(saved: Saved) -> dict[str, Tensor]:
    """The momentum of `sync: local`, where it is a checkpoint of such a run."""
    file = saved.folder / OUTER
    return load_file(file) if file.exists() else {}


def copy_weights(checkpoint: Path, folder: Path) -> None:
    for name in (ADAPTER, WEIGHTS, "adapter_config.json", "config.json"):
        if (checkpoint / name).exists():
            shutil.copy2(checkpoint / name, folder / name)
