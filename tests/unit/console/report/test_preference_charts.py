"""The report of a run by preferences: what stands beside the loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from console.report.page import write_page
from console.report.run_data import read_history
from tests.support.run_files import HEAD, start, step, write
from train.runlog.events import held_out_words, progress_line


def figures(number: int) -> dict[str, float]:
    return {
        "margin": number / 10, "accuracy": min(1.0, number / 10), "chosen_log_p": -20.0 - number,
        "rejected_log_p": -20.0 - 2 * number,
    }  # fmt: skip


def compared(number: int) -> dict[str, Any]:
    return {**step(100 + 2 * number, number, {HEAD: 8}, 1 / number), "pairs": figures(number)}


def evaluated(number: int) -> dict[str, Any]:
    return {"event": "eval", "time": 101.0 + 2 * number, "step": number, "loss": 0.5, "targets": 9, "best": True,
            "metrics": figures(number)}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    steps = [compared(number) for number in range(1, 13)]
    evals = [evaluated(6), evaluated(12)]
    done = {"event": "done", "time": 140.0, "step": 12, "loss": 0.0, "seconds": 30}
    write(tmp_path / "kind/nodes" / HEAD, "events.jsonl", [start(100, 0, [HEAD]), *steps, *evals, done])
    launch = {"run": "kind", "all": {"recipe": "preference"}}
    (tmp_path / "kind/nodes" / HEAD / "launch.json").write_text(json.dumps(launch))
    return tmp_path / "kind"


def test_margin_and_right_pairs_stand_beside_the_loss(run: Path) -> None:
    page = write_page(read_history(run), run / "report.html").read_text()
    assert "<h2>Margin</h2>" in page and "<h2>Loss</h2>" not in page
    for title in ("Loss", "Pairs right", "Likelihood"):
        assert f">{title}</" in page, title
    assert "held-out pairs right" in page and "60 % → 100 %" in page and "margin 0.600 → 1.200; step 6 → 12" in page


def test_without_held_out_rows_the_training_pairs_are_told(run: Path) -> None:
    log = run / "nodes" / HEAD / "events.jsonl"
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if '"eval"' not in line))
    page = write_page(read_history(run), run / "report.html").read_text()
    assert "training pairs right" in page and "10 % → 100 %" in page


def test_of_single_answers_a_step_may_have_no_margin(run: Path) -> None:
    """Where all of its answers are good ones."""
    log = run / "nodes" / HEAD / "events.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    for event in events:
        if event.get("step") == 3 and "pairs" in event:
            event["pairs"] = {"accuracy": 0.5, "chosen_log_p": -3.0, "kl": 0.1}
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    assert "<h2>Margin</h2>" in write_page(read_history(run), run / "report.html").read_text()


def test_of_a_reward_model_the_scores_stand_there(run: Path) -> None:
    log = run / "nodes" / HEAD / "events.jsonl"
    log.write_text(log.read_text().replace("_log_p", "_reward"))
    page = write_page(read_history(run), run / "report.html").read_text()
    assert ">Scores</" in page and ">Likelihood</" not in page and "0 is where it began" not in page
    assert "held-out pairs right" in page and "margin 0.600 → 1.200" in page


def test_a_step_is_told_with_its_margin() -> None:
    assert "loss 0.3333 · margin 0.300 · 30 % right" in progress_line(compared(3), 12, 60)
    assert held_out_words(evaluated(6)) == "held-out loss 0.5000 · margin 0.600 · 60 % right"
    single = {"loss": 0.5, "metrics": {"accuracy": 0.75, "chosen_log_p": -3.0, "kl": 0.1}}
    scored = {"loss": 0.5, "metrics": {"margin": 1.5, "accuracy": 0.75, "chosen_reward": 1.0, "rejected_reward": -0.5}}
    assert held_out_words(scored) == "held-out loss 0.5000 · margin 1.500 · 75 % right"
    assert held_out_words(single) == "held-out loss 0.5000 · 75 % right"
    several = evaluated(6)
    several["metrics"] |= {"on manners": 0.25}
    assert held_out_words(several) == "held-out loss 0.5000 · margin 0.600 · 60 % right · on manners 0.25"
