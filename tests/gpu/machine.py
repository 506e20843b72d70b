"""What is here: card, driver, versions; and what a line therefore lacks."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "triton", "transformers", "peft", "bitsandbytes", "unsloth", "unsloth_zoo")
TRAINER = ("torch", "transformers", "peft", "tokenizers", "safetensors", "numpy", "yaml")
LOCKS = ("node-gpu", "unsloth")
PROBE = """
import json, torch
cards = range(torch.cuda.device_count()) if torch.cuda.is_available() else []
print(json.dumps([{"name": torch.cuda.get_device_name(i), "capability": torch.cuda.get_device_capability(i),
    "memory_bytes": torch.cuda.get_device_properties(i).total_memory, "cuda": torch.version.cuda} for i in cards]))
"""


@dataclass(frozen=True, kw_only=True)
class Machine:
    device: str
    """cpu or cuda: what was asked for."""
    cards: list[dict[str, Any]] = field(default_factory=list)
    driver: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    modules: frozenset[str] = frozenset()
    """Of those that lines need, the ones that can be imported."""
    converter: bool = False
    smollm2: bool = False
    compiler: bool = False
    pair: tuple[str, ...] = ()
    controller: bool = False

    @property
    def name(self) -> str:
        return str(self.cards[0]["name"]) if self.device == "cuda" and self.cards else f"CPU {platform.machine()}"

    def lacks(self, needs: tuple[str, ...]) -> list[str]:
        return [need for need in needs if not NEEDS[need](self)]


def _module(*names: str) -> Callable[[Machine], bool]:
    return lambda machine: set(names) <= machine.modules


def _cards(count: int, gigabytes: float = 0, capability: tuple[int, int] = (0, 0)) -> Callable[[Machine], bool]:
    def has(machine: Machine) -> bool:
        fit = [
            card
            for card in machine.cards
            if card["memory_bytes"] >= gigabytes * 1e9 and tuple(card["capability"]) >= capability
        ]
        return machine.device == "cuda" and len(fit) >= count

    return has


NEEDS: dict[str, Callable[[Machine], bool]] = {
    "a card": _cards(1),
    "two cards": _cards(2),
    "a card with bf16": _cards(1, capability=(8, 0)),
    "a card of 8 GB": _cards(1, gigabytes=7.5),
    "torch": _module("torch"),
    "transformers and peft": _module(*TRAINER),
    "triton": _module("triton"),
    "a C compiler": lambda machine: machine.compiler,
    "bitsandbytes": _module("bitsandbytes"),
    "unsloth": _module("unsloth"),
    "smollm2-135m in the cache": lambda machine: machine.smollm2,
    "the gguf converter": lambda machine: machine.converter,
    "PAIR=NODE,NODE": lambda machine: len(machine.pair) == 2,
    "the controller's environment (make env)": lambda machine: machine.controller,
}


def look(device: str, pair: tuple[str, ...] = ()) -> Machine:
    names = {*PACKAGES, *TRAINER}
    modules = frozenset(name for name in names if importlib.util.find_spec(name) is not None)
    cards = _probe() if "torch" in modules and device != "cpu" else []
    return Machine(
        device=device if device != "auto" else "cuda" if cards else "cpu",
        cards=cards,
        driver=_driver() if cards else "",
        versions={
            "python": platform.python_version(),
            **{name: found for name in PACKAGES if (found := _version(name))},
        }
        | ({"cuda": str(cards[0]["cuda"])} if cards else {}),
        modules=modules,
        smollm2=(_cache() / "models/smollm2-135m/config.json").exists(),
        converter=any((_cache() / "tools").glob("gguf-*")),
        compiler=any(shutil.which(name) for name in ("gcc", "clang", "cc")),
        pair=pair,
        controller=(ROOT / ".venv/bin/python").exists(),
    )


def unlocked(versions: dict[str, str]) -> list[str]:
    """Packages whose version is not the locked one."""
    lock = locked()
    return [name for name, found in versions.items() if name in lock and found.partition("+")[0] != lock[name]]


def locked() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in LOCKS:
        file = ROOT / "requirements" / f"{name}.txt"
        for package, number in re.findall(r"^([\w.-]+)==([\w.]+)", file.read_text(), re.MULTILINE):
            found[package.lower().replace("-", "_")] = number
    return found


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _probe() -> list[dict[str, Any]]:
    """In a process of its own: a process that has opened a card cannot be forked."""
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False, timeout=120)
    return list(json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 and done.stdout else []


def _driver() -> str:
    file = Path("/proc/driver/nvidia/version")
    text = file.read_text() if file.exists() else ""
    found = re.search(r"\s(\d{3}\.\d+(?:\.\d+)?)\s", text)
    return found[1] if found else "unknown"


def _cache() -> Path:
    return Path(os.environ.get("MOTLEY_CACHE", "~/.cache/motley")).expanduser()
