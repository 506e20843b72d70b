"""A run of 12 steps, as two nodes wrote it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.run_files import HEAD, WORKER, done, gpu, held_out, member, start, step, write


@pytest.fixture
def fetched(tmp_path: Path) -> Path:
    """Its worker was lost after step 6; steps 5 and 6 were trained again by the head alone."""
    both, alone = {HEAD: 5, WORKER: 3}, {HEAD: 8}
    first = [start(100, 0, [HEAD, WORKER]), *(step(100 + 2 * n, n, both) for n in range(1, 7))]
    again = [start(130, 4, [HEAD]), *(step(122 + 2 * n, n, alone, 4 / n + 1e-4) for n in range(5, 13))]
    evals = [held_out(108, 4, 1.2), held_out(146, 12, 0.5)]
    write(tmp_path / "qa" / "nodes" / HEAD, "events.jsonl", [*first, *evals, *again, done(147.0, 12)])
    write(tmp_path / "qa" / "nodes" / WORKER, "events.jsonl", first, torn='{"event": "ste')
    lost = member("lost", 113.0, HEAD, [WORKER], "no answer for 6 s")
    write(tmp_path / "qa" / "nodes" / HEAD, "members.jsonl", [lost])
    for node in (HEAD, WORKER):
        cards = [gpu(100.0 + 10 * i, node, celsius=60 + i) for i in range(5)]
        write(tmp_path / "qa" / "nodes" / node, "gpu.jsonl", cards)
    asked = {"question": "What is <b>?", "wanted": "A tag.", "base": "No </script> idea.", "adapter": "A tag."}
    (tmp_path / "qa/answers.json").write_text(json.dumps({"questions": [asked]}))
    predicted = {"step_s": 1.5, "shares": {HEAD: 5, WORKER: 3}}
    (tmp_path / "qa" / "nodes" / HEAD / "launch.json").write_text(json.dumps({"run": "qa", "predicted": predicted}))
    return tmp_path / "qa"
