"""The page of a run whose work comes in pieces: how far it came, who did what, and nothing of training."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.report.read_run import read_history
from tests.support.report_page import rewrite, words_of
from tests.support.run_files import done, kept, start

MADE = ["big", "small", "big", "big"]


@pytest.fixture
def many(tmp_path: Path) -> Path:
    began = start(100.0, 0, [], 4) | {"rows_per_step": 1, "rows": 4, "nodes": {"big": {}, "small": {}}, "weights": 0}
    pieces = [
        {"event": "piece", "time": 110.0 + 5 * at, "step": at + 1, "piece": at, "node": node, "step_s": 4.0,
         "words": "16 answers", "nodes": {}}
        for at, node in enumerate(MADE)
    ]  # fmt: skip
    settings = {"recipe": "generate", "max_new_tokens": 64, "temperature": 0.9, "learning_rate": 2e-4}
    launch = {"all": settings, "given": {"piece": 16}}
    kept(tmp_path / "many", [began, *pieces, done(130.0, 4, None)], launch, nodes=["big", "small"])
    (tmp_path / "many/answers").mkdir()
    return tmp_path / "many"


def test_it_says_what_was_done_and_by_whom(many: Path) -> None:
    assert len(read_history(many).pieces) == 4, "each once, though both nodes wrote it"
    words = words_of(many)
    assert "done · 4 of 4 pieces on 2 machines in 30 s" in words
    assert "8.0 pieces a minute machines were at work 27 % of the time" in words
    assert "big 3 75 % 4.0 small 1 25 % 4.0" in words
    assert "longest answer 64 · temperature 0.9" in words
    assert "What it made lies beside this page: answers/" in words and "the same again ./motley launch" in words
    for of_training in ("learning rate", "trained", "./motley ask", "./motley export", "tokens 0", "no step"):
        assert of_training not in words, of_training


def test_without_an_end_its_time_is_that_of_its_pieces(many: Path) -> None:
    """It is still running, or all machines lost their power."""
    words = words_of(rewrite(many, keep=lambda event: event["event"] != "done"))
    assert "4 of 4 pieces on 2 machines in 25 s" in words and "9.6 pieces a minute" in words
