"""The report of a run on several data sets: the held-out loss of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from console.report.page import write_page
from console.report.run_data import read_history
from tests.support.run_files import HEAD, start, step, write
from train.runlog.events import held_out_words


def evaluated(number: int, **losses: float) -> dict[str, Any]:
    metrics = {f"on {name}": loss for name, loss in losses.items()}
    mean = sum(losses.values()) / len(losses)
    return {"event": "eval", "time": 101.0 + 2 * number, "step": number, "loss": mean, "targets": 9, "best": True,
            "metrics": metrics}  # fmt: skip


def test_the_loss_of_each_stands_in_the_report_and_its_chart(tmp_path: Path) -> None:
    steps = [step(100 + 2 * number, number, {HEAD: 8}, 2 - number / 10) for number in range(1, 9)]
    evals = [evaluated(4, manners=1.5, facts=1.25), evaluated(8, manners=1.0, facts=1.375)]
    done = {"event": "done", "time": 140.0, "step": 8, "loss": 1.2, "seconds": 30}
    write(tmp_path / "both/nodes" / HEAD, "events.jsonl", [start(100, 0, [HEAD]), *steps, *evals, done])
    page = write_page(read_history(tmp_path / "both"), tmp_path / "report.html").read_text()
    assert "step 4 → 8; on manners 1 · on facts 1.375" in page
    assert "held-out on manners" in page and "held-out on facts" in page
    assert held_out_words(evals[0]) == "held-out loss 1.3750 · on manners 1.5 · on facts 1.25"
