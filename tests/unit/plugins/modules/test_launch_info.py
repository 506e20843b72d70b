"""What a launch learns of a node's cards and of its runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from console.electricity import limit_of
from plugins.modules import launch_info
from tests.support.stand_ins import program
from train.plan.machines.facts import Card

SHOWN = {
    "name": "RTX 4070",
    "memory.total": "12282",
    "memory.used": "300",
    "compute_cap": "8.9",
    "power.limit": "200.00",
}


def shown(monkeypatch: pytest.MonkeyPatch, **changes: str) -> dict[str, Any]:
    """The one card of a machine, of which nvidia-smi shows this."""

    def table(_: str, fields: list[str], **__: Any) -> list[dict[str, str]]:
        return [{field: (SHOWN | changes)[field] for field in fields}]

    monkeypatch.setattr(launch_info.nvidia_smi, "table", table)
    [card] = launch_info.cards()
    return card


def test_the_plan_learns_the_power_limit_of_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    card = shown(monkeypatch)
    assert (card["bytes"] >> 20, card["used"] >> 20, card["capability"]) == (12282, 300, "8.9")
    assert limit_of([Card(**card)]) == 200


def test_a_card_without_memory_of_its_own_has_that_of_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_info, "memory_bytes", lambda: 128 << 30)
    monkeypatch.setattr(launch_info.preloading, "available_bytes", lambda: 120 << 30)
    card = shown(monkeypatch, name="NVIDIA GB10", **{"memory.total": "[N/A]", "memory.used": "[N/A]"})
    assert (card["bytes"], card["used"]) == (128 << 30, 8 << 30)


@pytest.mark.parametrize("says", ["ERR!", "[Unknown Error]", "[GPU requires reset]", "[GPU is lost]"])
def test_a_card_that_does_not_know_its_memory_is_none_to_train_on(monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    row = SHOWN | {"memory.total": says, "memory.used": says}
    monkeypatch.setattr(launch_info.nvidia_smi, "table", lambda *_, **__: [row, SHOWN])
    assert [card["bytes"] >> 20 for card in launch_info.cards()] == [12282]


def test_the_speeds_of_stages_are_those_that_a_run_kept(tmp_path: Path) -> None:
    step = {"event": "step", "nodes": {"a": {"rows": 8, "compute_s": 2.0, "layers": [0, 3]}}}
    for run, decided in {"cut": {"stage_speeds": "a=16.7,b=4.5"}, "other": {}}.items():
        logs, kept = tmp_path / "logs/runs" / run, tmp_path / "models/checkpoints" / run
        logs.mkdir(parents=True)
        kept.mkdir(parents=True)
        (logs / "events.jsonl").write_text(json.dumps(step) + "\n")
        (kept / "decided.json").write_text(json.dumps(decided))
    [found] = launch_info.measured(tmp_path, launch_info.known_runs(tmp_path))
    assert (found["run"], found["speeds"], found["layer_speeds"]) == ("cut", {}, {"a": 16.7, "b": 4.5})


def test_the_head_proves_a_model_by_the_environment_that_trains(tmp_path: Path) -> None:
    assert launch_info.prove(tmp_path, {"model_type": "llama"}) == {}
    answers = """printf '{"verdict": {"given": %s}}\\n' "$(cat)"; exit 1"""
    text = f'#!/bin/sh\n[ -z "$MOTLEY_HOME" ] || exit 3  # a mark of runs\necho "a warning"\n{answers}\n'
    python = program(tmp_path / "env/bin/python", text)
    assert launch_info.prove(tmp_path, {"model_type": "llama"}) == {"given": {"model_type": "llama"}}
    assert launch_info.prove(tmp_path, {}) == {}
    python.write_text("#!/bin/sh\necho unknown command check-model >&2; exit 2\n")
    assert launch_info.prove(tmp_path, {"model_type": "llama"}) == {}
