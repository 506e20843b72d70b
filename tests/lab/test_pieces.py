"""Work in pieces by three machines over ssh: answers while one loses its power, and a sweep whose best is trained and
asked tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.profile import CLUSTER_HOME as HOME
from tests.support import pace, small_set
from tests.support.bootstrap import Person, python_of
from tests.support.cluster import REPOSITORY
from tests.support.watching import Watching
from train.runlog.tail import read

MASTER, LAPTOP, OLD = "gpu-master", "gpu-worker-1", "gpu-worker-2"
PROMPTS, ENDS_S = 120, 180
TASK = """task: sums
dataset_path: json
dataset_kwargs: {data_files: {test: sums.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{q}}"
doc_to_choice: ["7", "8", "a cat"]
doc_to_target: 0
"""


def events_of(person: Person, run: str) -> list[dict[str, Any]]:
    return read(person.cluster[MASTER].disk.root / f"{HOME}/logs/runs/{run}/events.jsonl".lstrip("/"))


@pytest.mark.long  # tests/train/test_sweep.py, test_tasks.py; tests/unit/console/test_sweep.py has --then
def test_the_best_of_a_sweep_is_trained_and_asked_tasks(person: Person, tmp_path: Path) -> None:
    """Optuna and lm-evaluation-harness reach each machine as a set of their own beside what is there."""
    (task := tmp_path / "sums.yaml").write_text(TASK)
    (tmp_path / "sums.jsonl").write_text('{"q": "3 plus 4 is"}\n' * 48)
    for packages in ("sweep", "tasks"):
        if reason := small_set.why_not_fetched(python_of(person), packages):
            pytest.skip(f"no {packages} packages for the hosts: {reason}")
    data = str(REPOSITORY / "examples/household.jsonl")
    asked = ("--model", "tiny", "--set", "max_steps=6", "--set", "eval_fraction=0.2", "--set", "max_seq_length=128")
    values = "learning_rate=1e-4,1e-3,1e-2"
    swept = person.types("sweep", "--dataset", data, *asked, "--set", values, "--grid", "--then", "train").went_well()
    nodes = {event["node"] for event in events_of(person, "tiny-sweep") if event["event"] == "piece"}
    assert nodes == {MASTER, LAPTOP, OLD} and "tiny-sweep-best trains the best one's settings" in swept.out, swept.out
    scored = person.types("eval", "--tasks", str(task), "--run", "tiny-sweep-best")
    assert scored.rc == 0 and "sums" in scored.out, scored.out
    assert {event["event"] for event in events_of(person, "tiny-sweep-best-tasks")} >= {"piece", "done"}


def test_a_machine_without_power_takes_no_answer_with_it(person: Person, tmp_path: Path) -> None:
    lines = [{"prompt": f"How is the weather on day {day}?", "day": day} for day in range(PROMPTS)]
    (prompts := tmp_path / "days.jsonl").write_text("\n".join(map(json.dumps, lines)))

    def done() -> list[dict[str, Any]]:
        return [event for event in events_of(person, "tiny-answers") if event["event"] == "piece"]

    out, asked = tmp_path / "answers.jsonl", ("--model", "tiny", "--set", "piece=1", "--set", "max_seq_length=128")
    command = Watching(person, "generate", str(prompts), *asked, "--max-new-tokens", "60", "--out", str(out))
    pace.until(lambda: OLD in {event["node"] for event in done()}, ENDS_S, lambda: command.said)
    with person.cluster.suffers(OLD, "power-cut"):
        assert command.ends(ENDS_S) == 0, command.said
    assert f"done · {PROMPTS} pieces" in command.said and f"⚡ {OLD} lost" in command.said, command.said
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["day"], line["prompt"]) for line in answers] == [(line["day"], line["prompt"]) for line in lines]
    assert sorted(event["piece"] for event in done()) == list(range(PROMPTS))
    assert 1 <= sum(event["node"] == OLD for event in done()) < PROMPTS / 3
