"""A model from nothing against the field's own small figure: nanoGPT's CPU setting, our default beside GPT-2's class.

    make bench PARTS=pretrain
    python -m tests.bench.pretrain --repeats 1

Both get the same rows of characters in the same order: 12 × 64 a step, 4 layers, 4 heads, 128 wide. `gpt2` is
transformers' class with nanoGPT's settings and loop, 2000 steps. `ours` is `train run` with the defaults of
recipe=pretrain, 1000 steps: its held-out loss is to be no higher. `muon` is ours with that optimizer, 650 steps: it is
worth its traffic if its loss is no higher than ours. The text is what Python's own manual ships with.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.page import Figures, Found, bench, row
from tests.bench.trainer import PYTHON, answer
from tests.support.cluster import REPOSITORY
from tests.support.tables import table as table_of

NAME = "pretrain"
CHARACTERS = 1_000_000
OURS_STEPS, GPT2_STEPS, MUON_STEPS = 1000, 2000, 650
SHAPE = {"hidden_size": 128, "layers": 4, "heads": 4, "max_seq_length": 65, "rows_per_step": 12, "seed": 1337}
"""65 tokens are 64 that are predicted."""


@contextmanager
def rows() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="motley-bench-") as scratch:
        text, made = Path(scratch, "text"), Path(scratch, "rows")
        program = f"from tests.bench.pretrain_text import write; write({str(text)!r}, {CHARACTERS})"
        subprocess.run([PYTHON, "-c", program], cwd=REPOSITORY, check=True)
        words = ["prepare", "--recipe=pretrain", f"--dataset={text}", "--tokenizer=chars", "--eval-fraction=0.1"]
        answer("-m", "train", *words, f"--max-seq-length={SHAPE['max_seq_length']}", f"--out={made}", "--json")
        yield made


def ours(made: Path, steps: int = OURS_STEPS, **more: str) -> Figures:
    home = made.parent / f"home-{len(list(made.parent.glob('home-*')))}"
    chosen = SHAPE | {"recipe": "pretrain", "tokenizer": "chars", "dataset": made, "home": home, "max_steps": steps}
    chosen |= more | {"eval_every": 250, "eval_rows": 100_000, "device": "cpu", "save_every": 100_000}
    flags = (f"--{name.replace('_', '-')}={value}" for name, value in chosen.items())
    done = answer("-m", "train", "run", *flags, "--json")
    events = [json.loads(line) for line in Path(done["events"]).read_text().splitlines()]
    losses = {event["step"]: event["loss"] for event in events if event["event"] == "eval"}
    weights = next(event["weights"] for event in events if event["event"] == "start")
    return {"weights": weights, "steps": steps, "loss": losses[steps], "losses": losses, "seconds": done["seconds"]}


def muon(made: Path) -> Figures:
    return ours(made, MUON_STEPS, optimizer="muon")


def gpt2(made: Path) -> Figures:
    return dict(answer("-m", "tests.bench.gpt2_nano", made, GPT2_STEPS, json.dumps(SHAPE)))


BESIDE = {"ours": "gpt2", "muon": "ours"}
TITLES = {
    "gpt2": "GPT-2's class, nanoGPT's settings",
    "ours": "our default",
    "muon": "the same with `optimizer=muon`",
}


def table(found: Found) -> list[str]:
    rows = []
    for part, title in TITLES.items():
        first = found[part][0]
        what = f"{title}, {first['weights'] / 1e6:.2f} M weights, {first['steps']} steps"
        beside = [run["loss"] for run in found.get(BESIDE.get(part, ""), [])]
        aim = f"≤ {max(beside):.3f}" if beside else ""
        rows.append(row(what, [run["loss"] for run in found[part]], "{:.3f}", aim))
    return table_of(("held-out loss, a character", "figure", "aim"), rows)


if __name__ == "__main__":
    sys.exit(bench(__doc__, NAME, rows(), {"gpt2": gpt2, "ours": ours, "muon": muon}, table))
