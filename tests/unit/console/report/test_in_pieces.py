"""The page of a run whose work comes in pieces: how far it came, who did what, and nothing of training."""

from __future__ import annotations

import json
from pathlib import Path

from console.report.page import write_page
from console.report.run_data import read_history
from tests.unit.console.report.test_page import text_of

START = {
    "event": "start", "time": 100.0, "run": "many", "step": 0, "total_steps": 4, "rows_per_step": 1, "rows": 4,
    "nodes": {"big": {}, "small": {}}, "weights": 0, "decisions": {}, "identity": {}, "reasons": [],
}  # fmt: skip
MADE = ["big", "small", "big", "big"]


def write(folder: Path, *, ended: bool = True) -> Path:
    pieces = [
        {"event": "piece", "time": 110.0 + 5 * at, "step": at + 1, "piece": at, "node": node, "step_s": 4.0,
         "words": "16 answers", "nodes": {}}
        for at, node in enumerate(MADE)
    ]  # fmt: skip
    end = [{"event": "done", "time": 130.0, "step": 4, "loss": None, "seconds": 30.0}] if ended else []
    for name in ("big", "small"):
        (node := folder / "nodes" / name).mkdir(parents=True)
        (node / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in [START, *pieces, *end]))
        settings = {"recipe": "generate", "max_new_tokens": 64, "temperature": 0.9, "learning_rate": 2e-4}
        (node / "launch.json").write_text(json.dumps({"run": "many", "all": settings, "given": {"piece": 16}}))
    (folder / "answers").mkdir()
    return folder


def test_it_says_what_was_done_and_by_whom(tmp_path: Path) -> None:
    history = read_history(write(tmp_path / "many"))
    assert len(history.pieces) == 4, "each once, though both nodes wrote it"
    words = text_of(write_page(history, tmp_path / "report.html"))
    assert "done · 4 of 4 pieces on 2 machines in 30 s" in words
    assert "8.0 pieces a minute machines were at work 27 % of the time" in words
    assert "big 3 75 % 4.0 small 1 25 % 4.0" in words
    assert "longest answer 64 · temperature 0.9" in words
    assert "What it made lies beside this page: answers/" in words and "the same again ./motley launch" in words


def test_nothing_of_training_is_said(tmp_path: Path) -> None:
    words = text_of(write_page(read_history(write(tmp_path / "many")), tmp_path / "report.html"))
    for word in ("learning rate", "trained", "./motley ask", "./motley export", "tokens 0", "no step"):
        assert word not in words, word
