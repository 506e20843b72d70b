"""Fine-tuning, then preferences, then rewards: three commands over three unequal machines, each of which begins with
the adapter that the one before has made."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.profile import CLUSTER_HOME as HOME
from tests.support.bootstrap import Person
from train.plan.model.adapters import CONFIG, WEIGHTS
from train.plan.model.hashes import folder_hash
from train.runlog.tail import read

MASTER = "gpu-master"
DAYS = range(24)
BY_DATA = {
    "weather": [(f"How is the weather on day {day}?", f"On day {day} there is rain.") for day in DAYS],
    "garden": [(f"What grows on bed {day}?", f"On bed {day} there are beans.") for day in DAYS],
}
REWARDS = """
def letters(completions, **columns):
    return [sum(map(str.isalpha, text)) / 40 for text in completions]
"""
SHARED = {"max_seq_length": 64, "rows_per_step": 12, "learning_rate": 3e-3, "eval_fraction": 0.25, "eval_rows": 8}


@dataclass(frozen=True)
class Made:
    """What a run has said, and left on the head."""

    said: str
    folder: Path
    events: list[dict[str, Any]]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]

    @property
    def page(self) -> str:
        return (self.folder / "README.md").read_text()

    @property
    def hash(self) -> str:
        return folder_hash(self.folder, (CONFIG, WEIGHTS))

    @property
    def began_with(self) -> str:
        return str(self.of_kind("start")[0]["identity"].get("adapter_hash"))


def writes(file: Path, records: list[dict[str, str]]) -> Path:
    file.write_text("\n".join(map(json.dumps, records)))
    return file


def launched(person: Person, run: str, **settings: object) -> Made:
    words = {"run": run, **SHARED, **settings}
    said = person.types("launch", *(word for name, value in words.items() for word in ("-e", f"{name}={value}")))
    assert said.rc == 0 and f"done · {settings['max_steps']} steps" in said.out, said.out
    at = person.cluster[MASTER].disk.root / HOME.lstrip("/")
    return Made(said.out, at / f"results/{run}/adapter", read(at / f"logs/runs/{run}/events.jsonl"))


@pytest.mark.long  # tests/train/test_begin_with_adapter.py, tests/unit/train/plan/test_adapters.py
def test_each_begins_with_the_adapter_of_the_one_before(person: Person, tmp_path: Path) -> None:
    files = {
        name: writes(tmp_path / f"{name}.jsonl", [{"prompt": asked, "completion": answer} for asked, answer in pairs])
        for name, pairs in BY_DATA.items()
    }
    of_both = f"{files['weather']}:2,{files['garden']}:1"
    first = launched(person, "facts", recipe="sft", model="tiny", dataset=of_both, max_steps=12)
    assert first.of_kind("start")[0]["identity"]["mix"] == "weather:2, garden:1"
    assert re.search(r"weather × 2: 24 examples: \d+ held out, \d+ trained on; garden × 1: 24 examples: ", first.said)
    metrics = first.of_kind("eval")[-1]["metrics"]
    weather, garden = (float(metrics[f"on {name}"]) for name in BY_DATA)
    assert weather != garden and f" · on weather {weather:.3f} · on garden {garden:.3f} " in first.said

    pairs = [{"prompt": asked, "chosen": answer, "rejected": "Look it up."} for asked, answer in BY_DATA["weather"]]
    kind = {"recipe": "preference", "dataset": writes(tmp_path / "kind.jsonl", pairs), "max_steps": 4}
    second = launched(person, "kind", adapter="facts", **kind)
    assert second.began_with == first.hash
    step = second.of_kind("step")[0]
    assert step["pairs"]["margin"] > 0.1 and step["loss"] < math.log(2), "a new adapter is as far from its base as none"

    prompts = [{"prompt": asked} for asked, _ in BY_DATA["weather"]]
    (rewards := tmp_path / "my_rewards.py").write_text(REWARDS)
    tried = {"recipe": "grpo", "dataset": writes(tmp_path / "asked.jsonl", prompts), "rewards": rewards}
    tried |= {"group": 4, "max_new_tokens": 8, "beta": 0.01, "max_steps": 3}
    third = launched(person, "tried", adapter="kind", **tried)
    assert third.began_with == second.hash
    assert third.of_kind("step")[0]["rollout"]["kl"] > 1e-3, "so far is its first answer from its base"
    line = "`tiny` → sft `facts` (weather × 2, garden × 1, 12 steps) → preference `kind` (kind, 4 steps) → "
    assert f"| descent | {line}grpo `tried` (asked, 3 steps) |" in third.page
