"""The report of a run by rewards: what stands in the loss's place."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest

from console.report.page import write_page
from console.report.run_data import read_history
from tests.support.run_files import HEAD, start, step, write
from train.runlog.events import held_out_words, progress_line


def answered(number: int) -> dict[str, Any]:
    rollout = {
        "reward": number / 10, "spread": 0.1, "by_function": {"exact": number / 20}, "answer_tokens": 30.0 + number,
        "longest": 64, "cut": 0.25, "equal_groups": 0.5, "answers_crc": 7, "generate_s": {HEAD: 0.25},
        "generate_wait_s": {HEAD: 0.125}, "made": {HEAD: 8}, "taken_over": 1,
    }  # fmt: skip
    return {**step(100 + 2 * number, number, {HEAD: 8}, 1e-9), "rollout": rollout}


def evaluated(number: int, reward: float) -> dict[str, Any]:
    metrics = {"reward": reward, "exact": reward / 2}
    return {"event": "eval", "time": 101.0 + 2 * number, "step": number, "loss": -reward, "targets": 9, "best": True,
            "metrics": metrics}  # fmt: skip


@pytest.fixture
def rewarded(tmp_path: Path) -> Path:
    steps = [answered(number) for number in range(1, 13)]
    evals = [evaluated(6, 0.25), evaluated(12, 0.75)]
    done = {"event": "done", "time": 140.0, "step": 12, "loss": 0.0, "seconds": 30}
    write(tmp_path / "sums/nodes" / HEAD, "events.jsonl", [start(100, 0, [HEAD]), *steps, *evals, done])
    (tmp_path / "sums/nodes" / HEAD / "launch.json").write_text(json.dumps({"run": "sums", "all": {"recipe": "grpo"}}))
    return tmp_path / "sums"


def test_the_reward_stands_where_a_loss_would(rewarded: Path) -> None:
    page = write_page(read_history(rewarded), rewarded / "report.html").read_text()
    assert "<h2>Reward</h2>" in page and "<h2>Loss</h2>" not in page
    assert "held-out reward" in page and "0.250 → 0.750" in page and "held-out loss" not in page
    assert "exact 0.600; answers of 42 tokens, 25 % cut off; 50 % of the groups without a difference" in page
    assert "How long the answers are." in page and "What each function gives, without its weight." in page


def test_what_the_bounds_held_back_is_told_where_there_are_bounds(rewarded: Path) -> None:
    assert "beyond their bounds" not in write_page(read_history(rewarded), rewarded / "report.html").read_text()
    log = rewarded / "nodes" / HEAD / "events.jsonl"
    log.write_text(log.read_text().replace('"answers_crc": 7', '"answers_crc": 7, "clipped": 0.125'))
    page = write_page(read_history(rewarded), rewarded / "report.html").read_text()
    assert "Of the tokens of the last 12 steps 12.5 % were beyond their bounds (epsilon)." in page


def test_the_seconds_of_both_halves_are_shown(rewarded: Path) -> None:
    page = write_page(read_history(rewarded), rewarded / "report.html").read_text()
    seconds = step(0, 1, {HEAD: 8}, 1e-9)["nodes"][HEAD]
    trained_s, others_s = seconds["compute_s"] - 0.25, max(0.0, seconds["wait_s"] - 0.125)
    assert "Seconds of a step" in page
    assert (
        f"{HEAD} 8.0 answers in 0.25 s, {trained_s:.2f} s of training, 0.12 s of waiting for answers and "
        f"{others_s:.2f} s for the others' training" in html.unescape(page)
    )


def test_without_held_out_prompts_the_training_reward_is_told(rewarded: Path) -> None:
    log = rewarded / "nodes" / HEAD / "events.jsonl"
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if '"eval"' not in line))
    page = write_page(read_history(rewarded), rewarded / "report.html").read_text()
    assert "training reward" in page and "0.200 → 1.100" in page


def test_a_step_is_told_by_its_reward() -> None:
    line = progress_line(answered(3), 12, 60)
    assert "reward 0.3000" in line and "loss" not in line
    assert held_out_words(evaluated(6, 0.25)) == "held-out reward 0.2500 · exact 0.125"
    assert held_out_words({"loss": 1.5}) == "held-out loss 1.5000"
