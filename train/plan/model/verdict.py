"""Whether a model trains exactly, as its miniature has shown (train/proof), kept by its config and the versions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from train.cache import cache_dir
from train.errors import BadInput
from train.plan.model.counts import Counts
from train.versions import package_hash

FOLDER, FILE = "proofs", "verdict.json"
PACKAGES = ("torch", "transformers", "peft")
UNREAD = (
    *("_name_or_path", "transformers_version", "dtype", "torch_dtype"),
    *("bos_token_id", "eos_token_id", "pad_token_id"),
)
"""What of a config.json no proof reads."""
OTHER_MODEL = "choose another model: ./motley check-model NAME shows what each can do"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a miniature of a model could do. A reason stands where it could not."""

    family: str
    refused: str = ""
    """Why it cannot be trained at all."""
    unpacked: str = ""
    """Why samples may share no row."""
    held: str = ""
    """Why its layers cannot be streamed."""
    whole: str = ""
    """Why it cannot be cut over several machines."""
    full: str = ""
    """Why it is trained through an adapter alone."""
    bf16: str = ""
    fp16: str = ""
    """Why it does not compute in this precision."""
    shape: Mapping[str, int] = field(default_factory=dict)
    """The sizes that memory is computed from, in the words of most families."""
    counts: Counts | None = None
    """Its weights."""
    seconds: float = 0.0

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        known = {spec.name: found[spec.name] for spec in fields(cls) if spec.name in found}
        return cls(**known | {"counts": Counts.from_json(found["counts"]) if found.get("counts") else None})

    def require(self, where: str) -> None:
        if self.refused:
            raise BadInput(f"a {self.family} model is not trained: {self.refused}", f"model: {where}", OTHER_MODEL)

    @property
    def line(self) -> str:
        """The verdict as one line of a plan."""
        if self.refused:
            return f"{self.family}: refused, {self.refused}; choose another model"
        able = "exact in a miniature, " + ("in any shares" if self.unpacked else "packed and in any shares")
        rows = "one sample a row, so an epoch has a row for each sample instead of fewer full ones"
        limits = {
            rows: self.unpacked,
            "no streaming, so each card must hold it": self.held,
            "no pipes, so each machine computes all of it": self.whole,
            "an adapter alone, no method=full": self.full,
            "no bf16, so precision=fp32": self.bf16,
            "no fp16, so precision=fp32 where a card has no bf16": self.fp16,
        }
        return "; ".join([f"{self.family}: {able}", *(f"{what}: {why}" for what, why in limits.items() if why)])


def folder_of(config: Mapping[str, Any]) -> Path:
    """The folder of a verdict, by the config of the model, the packages that compute it, and this package."""
    facts = {
        "config": {name: value for name, value in config.items() if name not in UNREAD},
        "packages": {name: version_of(name) for name in PACKAGES},
        "train": package_hash(Path(__file__).parents[2]),
    }
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]
    return cache_dir() / FOLDER / key


def version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def kept(folder: Path) -> Verdict:
    return Verdict.from_json(json.loads((folder / FILE).read_text()))


def keep(folder: Path, verdict: Verdict) -> None:
    (folder / FILE).write_text(json.dumps(asdict(verdict), indent=1) + "\n")
