"""Which locked sets the nodes get, and the id of such a choice; pure but for reading the locks.

Sets are never mixed within a cluster: the driver phase's plan decides for all nodes; where there is none (nobody let
Motley look after drivers), the oldest driver that is loaded does; and what the nodes outside a limited run have stays.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from plugins.module_utils.motley.env_files import of_wheel
from requirements.fetch_wheels import UNHASHED, for_python
from requirements.wheelhouse import lock_id
from train.nvidia_driver import numbers, older

Data = dict[str, Any]
CPU = "node-cpu"
CATALOGUE = Path(__file__).parents[2] / "roles/motley_gpu_driver/vars/main/driver_and_torch_catalogue.yml"
BRANCHES = yaml.safe_load(CATALOGUE.read_text())["__motley_gpu_driver_catalogue"]["branches"]
LEAST = {str(branch["set"]): str(branch["least"]) for branch in BRANCHES}
"""The oldest driver that carries the CUDA of a set's torch."""


def motley_env_looks(names: list[str], hostvars: Any) -> list[Data]:
    return [hostvars[name].get("__motley_python_env_look") or {} for name in names]


def motley_env_choice(
    names: list[str],
    looks: list[Data],
    plan: Data | None = None,
    insisted: list[str] | None = None,
    others: Data | None = None,
) -> Data:
    """`sets`, or `error` and `fix`. `others`: the recorded choice (sets, nodes) of nodes outside this run, if any."""
    drivers = {name: str(look["driver"]) for name, look in zip(names, looks, strict=True) if look.get("driver")}
    planned = str(plan.get("set", "")) if plan and plan.get("nodes") else ""
    kept = list(others["sets"]) if others and others.get("nodes") else []
    if insisted:
        sets = list(insisted)
    elif planned:
        sets = with_unsloth(planned)
    elif kept:
        sets = kept
    elif drivers:
        oldest = min(drivers.values(), key=numbers)
        sets = with_unsloth(next((name for name in LEAST if not older(oldest, LEAST[name])), "node-gpu-r570"))
    else:
        sets = [CPU]
    if kept and kept != sets:
        what = f"{', '.join(others['nodes'])} have {' + '.join(kept)}, now it would be {' + '.join(sets)}"  # type: ignore[index]
        return {
            "error": what,
            "fix": "one choice for all nodes: ./motley bootstrap --phase python_env, without --nodes",
        }
    least = next((LEAST[name] for name in sets if name in LEAST), "")
    old = [name for name, driver in drivers.items() if not insisted and older(driver, least)]
    if old:
        words = ", ".join(f"{name} runs driver {drivers[name]}" for name in old)
        fix = "./motley bootstrap --phase gpu_driver --reboot yes, then run again"
        return {"error": f"{words}; torch of {sets[0]} needs {least}", "fix": fix}
    return {"sets": sets}


def with_unsloth(name: str) -> list[str]:
    return [name] if name == CPU else [name, "unsloth"]


def motley_env_others(recorded: Data, cluster: list[str], in_this_run: list[str]) -> Data:
    """The record of the nodes that are in the cluster and not in this run."""
    return motley_env_record(recorded, [], set(recorded.get("nodes", [])) - set(cluster) | set(in_this_run))


def motley_env_record(recorded: Data, sets: list[str], names: Any) -> Data:
    """The record with these nodes: with `sets` they have them now, without they are forgotten."""
    left = [name for name in recorded.get("nodes", []) if name not in names]
    if sets:
        return {"sets": list(sets), "nodes": sorted([*left, *names])}
    return {"sets": list(recorded.get("sets", [])), "nodes": left} if left else {}


def motley_lock_id(sets: list[str], look: Data, requirements: str) -> str:
    return lock_id(look["python"], sets, Path(requirements), look["machine"])


def motley_env_wrong(names: list[str], looks: list[Data], lock: str) -> list[str]:
    """Names of the nodes that do not have this locked environment, intact."""
    pairs = zip(names, looks, strict=True)
    return [name for name, look in pairs if look.get("lock") != lock or look.get("why")]


def motley_env_wheels(files: Data, looks: list[Data]) -> Data:
    """The locked wheels that such nodes lack: all, or uv's and those of the packages that are harmed."""
    if not all(look.get("harmed") for look in looks):
        return files
    harmed = {package.lower() for look in looks for package in look["harmed"]}
    return {name: facts for name, facts in files.items() if of_wheel(name) in harmed or name.startswith("uv-")}


def motley_env_itself(sets: list[str], look: Data, requirements: str) -> list[Data]:
    """The locks of these sets as such a machine reads them, where it fetches the wheels itself."""
    parts = [part for name in sets for part in (name, UNHASHED.get(name)) if part]
    texts = {
        part: for_python((Path(requirements) / f"{part}.txt").read_text(), look["python"], look["machine"])
        for part in parts
    }
    return [{"text": text, "hashed": part not in UNHASHED.values()} for part, text in texts.items()]


class FilterModule:
    def filters(self) -> dict[str, Callable[..., object]]:
        return {
            "motley_env_looks": motley_env_looks,
            "motley_env_choice": motley_env_choice,
            "motley_env_others": motley_env_others,
            "motley_env_record": motley_env_record,
            "motley_lock_id": motley_lock_id,
            "motley_env_wrong": motley_env_wrong,
            "motley_env_wheels": motley_env_wheels,
            "motley_env_itself": motley_env_itself,
        }
