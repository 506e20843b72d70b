"""Which locked sets the nodes get, and the id of such a choice; pure but for reading the locks."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def motley_env_sets(looks: list[dict[str, Any]], simulated: bool) -> list[str]:
    """One choice for all nodes: sets are never mixed within a process group. Simulated cards cannot compute."""
    drivers = [str(look.get("driver", "")) for look in looks if look.get("driver")]
    if simulated or not drivers:
        return ["node-cpu"]
    oldest = min(tuple(int(part) for part in driver.split(".")[:2]) for driver in drivers)
    return ["node-gpu" if oldest >= (580, 65) else "node-gpu-r570", "unsloth"]


def motley_lock_id(sets: list[str], python: str, requirements: str) -> str:
    """As requirements/wheelhouse.py counts it."""
    path = Path(requirements).resolve() / "wheelhouse.py"
    spec = importlib.util.spec_from_file_location("motley_wheelhouse", path)
    assert spec and spec.loader
    wheelhouse = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(wheelhouse)
    return str(wheelhouse.lock_id(python, sets))


def motley_env_wrong(names: list[str], looks: list[dict[str, Any]], lock: str) -> list[str]:
    """Names of the nodes that do not have this locked environment, intact."""
    pairs = zip(names, looks, strict=True)
    return [name for name, look in pairs if look.get("lock") != lock or look.get("why")]


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "motley_env_sets": motley_env_sets,
            "motley_lock_id": motley_lock_id,
            "motley_env_wrong": motley_env_wrong,
        }
