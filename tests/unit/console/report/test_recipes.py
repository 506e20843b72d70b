"""What stands beside the loss, or in its place, in the report of a run by rewards, by preferences or on several data
sets, and in the lines of its terminal."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import pytest

from tests.support.report_page import html_of, rewrite
from tests.support.run_files import HEAD, done, held_out, kept, start, step
from train.runlog.events import held_out_words, progress_line


def trained(folder: Path, recipe: str, steps: list[dict[str, Any]], evals: list[dict[str, Any]]) -> Path:
    events = [start(100, 0, [HEAD]), *steps, *evals, done(140.0, len(steps))]
    return kept(folder, events, {"all": {"recipe": recipe}})


def evaluated(number: int, loss: float = 0.5, **metrics: float) -> dict[str, Any]:
    return held_out(101.0 + 2 * number, number, loss) | {"metrics": metrics}


def no_held_out(event: dict[str, Any]) -> bool:
    return event["event"] != "eval"


# -- rewards -----------------------------------------------------------------------------------------------------------


def answered(number: int) -> dict[str, Any]:
    rollout = {
        "reward": number / 10, "spread": 0.1, "by_function": {"exact": number / 20}, "answer_tokens": 30.0 + number,
        "longest": 64, "cut": 0.25, "equal_groups": 0.5, "answers_crc": 7, "generate_s": {HEAD: 0.25},
        "generate_wait_s": {HEAD: 0.125}, "made": {HEAD: 8}, "taken_over": 1,
    }  # fmt: skip
    return {**step(100 + 2 * number, number, {HEAD: 8}, 1e-9), "rollout": rollout}


def rewarded(number: int, reward: float) -> dict[str, Any]:
    return evaluated(number, -reward, reward=reward, exact=reward / 2)


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    steps = [answered(number) for number in range(1, 13)]
    return trained(tmp_path / "sums", "grpo", steps, [rewarded(6, 0.25), rewarded(12, 0.75)])


def test_the_reward_stands_where_a_loss_would(sums: Path) -> None:
    page = html_of(sums)
    assert "<h2>Reward</h2>" in page and "<h2>Loss</h2>" not in page
    assert "held-out reward" in page and "0.250 → 0.750" in page and "held-out loss" not in page
    assert "exact 0.600; answers of 42 tokens, 25 % cut off; 50 % of the groups without a difference" in page
    assert "How long the answers are." in page and "What each function gives, without its weight." in page
    line = progress_line(answered(3), 12, 60)
    assert "reward 0.3000" in line and "loss" not in line
    assert held_out_words(rewarded(6, 0.25)) == "held-out reward 0.2500 · exact 0.125"


def test_what_the_bounds_held_back_is_told_where_there_are_bounds(sums: Path) -> None:
    assert "beyond their bounds" not in html_of(sums)
    rewrite(sums, lambda event: event.get("rollout", {}).update(clipped=0.125))
    assert "Of the tokens of the last 12 steps 12.5 % were beyond their bounds (epsilon)." in html_of(sums)


def test_the_seconds_of_both_halves_are_shown(sums: Path) -> None:
    page = html_of(sums)
    assert "Seconds of a step" in page
    words = (
        "8.0 answers in 0.25 s, 1.75 s of training, 0.12 s of waiting for answers and 0.00 s for the others' training"
    )
    assert f"{HEAD} {words}" in html.unescape(page)


def test_without_held_out_prompts_the_training_reward_is_told(sums: Path) -> None:
    page = html_of(rewrite(sums, keep=no_held_out))
    assert "training reward" in page and "0.200 → 1.100" in page and "no held-out prompts were asked" in page


# -- preferences -------------------------------------------------------------------------------------------------------


def pairs(number: int) -> dict[str, float]:
    return {
        "margin": number / 10, "accuracy": min(1.0, number / 10), "chosen_log_p": -20.0 - number,
        "rejected_log_p": -20.0 - 2 * number,
    }  # fmt: skip


def compared(number: int) -> dict[str, Any]:
    return {**step(100 + 2 * number, number, {HEAD: 8}, 1 / number), "pairs": pairs(number)}


@pytest.fixture
def kind(tmp_path: Path) -> Path:
    steps = [compared(number) for number in range(1, 13)]
    return trained(tmp_path / "kind", "preference", steps, [evaluated(number, **pairs(number)) for number in (6, 12)])


def test_margin_and_right_pairs_stand_beside_the_loss(kind: Path) -> None:
    page = html_of(kind)
    assert "<h2>Margin</h2>" in page and "<h2>Loss</h2>" not in page
    for title in ("Loss", "Pairs right", "Likelihood"):
        assert f">{title}</" in page, title
    assert "held-out pairs right" in page and "60 % → 100 %" in page and "margin 0.600 → 1.200; step 6 → 12" in page
    assert "loss 0.3333 · margin 0.300 · 30 % right" in progress_line(compared(3), 12, 60)


def test_without_held_out_rows_the_training_pairs_are_told(kind: Path) -> None:
    page = html_of(rewrite(kind, keep=no_held_out))
    assert "training pairs right" in page and "10 % → 100 %" in page


def test_of_single_answers_a_step_may_have_no_margin(kind: Path) -> None:
    """Where all of its answers are good ones."""

    def without_margin(event: dict[str, Any]) -> None:
        if event.get("step") == 3 and "pairs" in event:
            event["pairs"] = {"accuracy": 0.5, "chosen_log_p": -3.0, "kl": 0.1}

    assert "<h2>Margin</h2>" in html_of(rewrite(kind, without_margin))


def test_of_a_reward_model_the_scores_stand_there(kind: Path) -> None:
    log = kind / "nodes" / HEAD / "events.jsonl"
    log.write_text(log.read_text().replace("_log_p", "_reward"))
    page = html_of(kind)
    assert ">Scores</" in page and ">Likelihood</" not in page and "0 is where it began" not in page
    assert "held-out pairs right" in page and "margin 0.600 → 1.200" in page


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        (pairs(6), "margin 0.600 · 60 % right"),
        ({"margin": 1.5, "accuracy": 0.75, "chosen_reward": 1.0, "rejected_reward": -0.5}, "margin 1.500 · 75 % right"),
        ({"accuracy": 0.75, "chosen_log_p": -3.0, "kl": 0.1}, "75 % right"),
        (pairs(6) | {"on manners": 0.25}, "margin 0.600 · 60 % right · on manners 0.25"),
        ({"on manners": 1.5, "on facts": 1.25}, "on manners 1.5 · on facts 1.25"),
    ],
)
def test_held_out_figures_in_a_line(metrics: dict[str, float], words: str) -> None:
    assert held_out_words({"loss": 0.5}) == "held-out loss 0.5000"
    assert held_out_words({"loss": 0.5, "metrics": metrics}) == f"held-out loss 0.5000 · {words}"


# -- several data sets -------------------------------------------------------------------------------------------------


def test_the_loss_of_each_data_set_stands_in_the_report_and_its_chart(tmp_path: Path) -> None:
    steps = [step(100 + 2 * number, number, {HEAD: 8}, 2 - number / 10) for number in range(1, 9)]
    evals = [
        evaluated(4, **{"on manners": 1.5, "on facts": 1.25}),
        evaluated(8, **{"on manners": 1.0, "on facts": 1.375}),
    ]
    page = html_of(trained(tmp_path / "both", "sft", steps, evals))
    assert "step 4 → 8; on manners 1 · on facts 1.375" in page
    assert "held-out on manners" in page and "held-out on facts" in page
