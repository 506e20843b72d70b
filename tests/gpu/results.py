"""What was found, a file a line; and what a result belongs to: another code or another card makes it void."""

from __future__ import annotations

import functools
import hashlib
import json
import time
from pathlib import Path
from typing import Any

from tests.gpu.line import Line, Verdict
from tests.gpu.machine import ROOT, Machine
from train.files import write_atomic

RECORDED = Path(__file__).parent / "recorded"
Result = dict[str, Any]


def key_of(line: Line, machine: Machine) -> str:
    facts = [line.name, code_hash(), machine.device, machine.cards, machine.driver, machine.versions, machine.pair]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


@functools.cache
def code_hash() -> str:
    whole = hashlib.sha256()
    for folder in ("train", "tests/gpu"):
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in (".py", ".yml", ".json") and file.is_file():
                whole.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return whole.hexdigest()[:16]


def file_of(folder: Path, line: Line) -> Path:
    return folder / f"{line.name}.json"


def known(folder: Path, line: Line, machine: Machine) -> Result | None:
    try:
        found = json.loads(file_of(folder, line).read_text())
    except (OSError, ValueError):
        return None
    return dict(found) if found.get("key") == key_of(line, machine) else None


def keep(folder: Path, line: Line, machine: Machine, verdict: Verdict, *, values: Any, seconds: float) -> Result:
    found = result(line, "passed" if verdict.passed else "failed", verdict.sentence) | {
        "key": key_of(line, machine),
        "machine": machine.name,
        "driver": machine.driver,
        "versions": machine.versions,
        "pair": list(machine.pair),
        "date": time.strftime("%Y-%m-%d"),
        "seconds": round(seconds, 1),
        "values": values,
    }
    write_atomic(file_of(folder, line), (json.dumps(found, indent=1) + "\n").encode())
    return found


def result(line: Line, state: str, sentence: str) -> Result:
    return {"line": line.name, "about": line.about, "state": state, "sentence": sentence}


def recorded(line: Line) -> dict[str, Any]:
    """Figures for a line that no CPU can measure: a card's, or made up to be judged, and they say which."""
    found = json.loads((RECORDED / f"{line.name}.json").read_text())
    if not (found.pop("card", "") or found.pop("simulated", False)):
        raise ValueError(f"{line.name}.json: recorded figures must name the card, or say that they are simulated")
    return dict(found)


def simulate(line: Line) -> Result:
    verdict = line.judge(recorded(line))
    return result(line, "simulated" if verdict.passed else "failed", verdict.sentence)
