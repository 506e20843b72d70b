"""How much slower a step is whose base is streamed from its files, on this machine's processor: whole steps of SmolLM2,
held and streamed in turns, so that a machine that drifts drifts for both.

    make bench PARTS=stream
    python -m tests.bench.stream 512 --repeats 3
"""

from __future__ import annotations

import functools
import sys
from contextlib import nullcontext

from tests.bench.page import Figures, Found, bench, spread
from tests.bench.trainer import answer
from tests.support.tables import table as table_of

NAME = "stream"
TOKENS = (128, 512)
"""Of a micro-batch: reading the base takes the same time for each."""
STEPS = 4
PROGRAM = """
import json, sys, time
import torch
from train.models.backends import ModelSpec, get
from train.models.model_files import model_folder
from train.recipes.sft.recipe import full_rows

tokens, steps = map(int, sys.argv[1:])
hf, models, seconds = get("hf"), {}, {"gpu": [], "stream": []}
for weights in seconds:
    spec = ModelSpec(folder=model_folder("smollm2-135m"), weights=weights, gradient_checkpointing="true")
    models[weights] = hf.build(spec)
batch = full_rows(max(1, tokens // 256), min(tokens, 256), 1000, "cpu")
for _ in range(steps + 1):
    for weights, model in models.items():
        began = time.perf_counter()
        hf.loss_sum(model, batch).backward()
        seconds[weights].append(time.perf_counter() - began)
print(json.dumps({weights: sorted(found[1:])[steps // 2] for weights, found in seconds.items()}))
"""


def measure(_: None, tokens: int) -> Figures:
    return dict(answer("-c", PROGRAM, tokens, STEPS))


def table(found: Found) -> list[str]:
    rows = []
    for tokens in TOKENS:
        held, streamed = ([run[kind] for run in found[str(tokens)]] for kind in ("gpu", "stream"))
        slower = [100 * (s / h - 1) for h, s in zip(held, streamed, strict=True)]
        rows.append((tokens, spread(held, "{:.2f}"), spread(streamed, "{:.2f}"), spread(slower, "{:.0f} %")))
    return table_of(("tokens at a time", "held, s", "streamed, s", "slower by"), rows)


def main() -> int:
    parts = {str(tokens): functools.partial(measure, tokens=tokens) for tokens in TOKENS}
    return bench(__doc__, NAME, nullcontext(), parts, table)


if __name__ == "__main__":
    sys.exit(main())
