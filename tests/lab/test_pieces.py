"""Many answers by three machines, of which one loses its power: one answer to each prompt, brought by the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab import faults
from lab.profile import CLUSTER_HOME as HOME
from tests.support import pace
from tests.support.bootstrap import Person
from tests.support.watching import Watching

MASTER, OLD = "gpu-master", "gpu-worker-2"
PROMPTS, ENDS_S = 120, 180


def test_a_machine_without_power_takes_no_answer_with_it(person: Person, tmp_path: Path) -> None:
    lines = [{"prompt": f"How is the weather on day {day}?", "day": day} for day in range(PROMPTS)]
    (prompts := tmp_path / "days.jsonl").write_text("\n".join(map(json.dumps, lines)))
    events = person.cluster[MASTER].disk.root / f"{HOME}/logs/runs/tiny-answers/events.jsonl".lstrip("/")

    def done() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else []
        return [event for event in found if event["event"] == "piece"]

    out, asked = tmp_path / "answers.jsonl", ("--model", "tiny", "--set", "piece=1", "--set", "max_seq_length=128")
    command = Watching(person, "generate", str(prompts), *asked, "--max-new-tokens", "60", "--out", str(out))
    pace.until(lambda: OLD in {event["node"] for event in done()}, ENDS_S, lambda: command.said)
    faults.inject(person.cluster.lab, person.cluster[OLD], "power-cut")
    try:
        assert command.ends(ENDS_S) == 0, command.said
    finally:
        faults.fix(person.cluster.lab, person.cluster[OLD], "power-cut")
    assert f"done · {PROMPTS} pieces" in command.said and f"⚡ {OLD} lost" in command.said, command.said
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["day"], line["prompt"]) for line in answers] == [(line["day"], line["prompt"]) for line in lines]
    assert sorted(event["piece"] for event in done()) == list(range(PROMPTS))
    assert 1 <= sum(event["node"] == OLD for event in done()) < PROMPTS / 3
