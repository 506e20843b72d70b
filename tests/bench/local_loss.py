"""What `sync: local` costs in loss after equal tokens: one process plays three unequal nodes, no network, no clock.

    ~/.cache/motley/envs/train/bin/python -m tests.bench.local_loss DATA --base FOLDER

DATA is a prepared folder (`train prepare --dataset stdlib-qa --model tiny --max-seq-length 128 --out DATA`). First all
weights of `tiny` are trained to FOLDER, then an adapter on it: exactly, and by each of VARIANTS. Shares are 7 : 3 : 2.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from train.data.rows import PackedRows, open_rows
from train.engine.batches import loss_over, rows_of_step
from train.engine.optimizer import learning_rate
from train.models import backends
from train.models.backends import to_tensors
from train.models.model_files import model_folder
from train.models.weights import trained_weights
from train.plan.speed.row_split import spans

COUNTS, RATE, STEPS, BASE_STEPS = (7, 3, 2), 2e-3, 200, 250
ROWS = sum(COUNTS)
EVEN = ROWS / len(COUNTS)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Local steps in one of the forms that were weighed; 0 steps a round is exact sync."""

    steps: int = 16
    outer_rate: float = 0.7
    momentum: float = 0.5
    small: str = "as is"
    """What a node with few rows does: a step of these rows, fewer steps of more rows, or a lower learning rate."""


VARIANTS = (
    Variant(steps=0),
    Variant(),
    Variant(momentum=0.9),
    Variant(outer_rate=1.0, momentum=0.0),
    Variant(small="fewer steps"),
    Variant(small="rate by root"),
    Variant(small="rate by share"),
    Variant(steps=5),
    Variant(steps=50),
)


class Play:
    """The nodes of one run, by turns in one model."""

    def __init__(self, data: Path, base: str, *, method: str, seed: int) -> None:
        self.rows, self.held_out, self.seed = open_rows(data), open_rows(data, "eval"), seed
        backend = backends.get("hf")
        torch.manual_seed(0)
        spec = backends.ModelSpec(
            folder=base, device="cpu", precision="fp32", max_seq_length=self.rows.row_length, method=method, lora_r=8
        )
        self.model: Any = backend.build(spec)
        self.module = backends.loss_module(backend, self.model, "fp32", "cpu")
        self.weights = list(trained_weights(self.model).values())

    def optimizer(self) -> torch.optim.AdamW:
        return torch.optim.AdamW(self.weights, lr=RATE, weight_decay=0.0)

    def backward(self, mine: list[int]) -> None:
        if mine:
            self.module(to_tensors(self.rows.batch(mine), "cpu")).backward()

    def put(self, values: list[torch.Tensor]) -> None:
        with torch.no_grad():
            for weight, value in zip(self.weights, values, strict=True):
                weight.copy_(value)

    def now(self) -> list[torch.Tensor]:
        return [weight.detach().clone() for weight in self.weights]

    def update(self, optimizer: torch.optim.AdamW, tokens: int, rate: float) -> None:
        for weight in self.weights:
            weight.grad = weight.grad / tokens
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()

    def loss(self) -> float:
        count = min(64, len(self.held_out))
        total, targets = loss_over(self.module, self.held_out, list(range(count)), micro_batch=8, device="cpu")
        return total / targets


def exact(play: Play, steps: int) -> None:
    optimizer = play.optimizer()
    for step in range(steps):
        chosen = rows_of_step(step, rows=len(play.rows), rows_per_step=ROWS, seed=play.seed)
        play.backward(chosen)
        play.update(optimizer, count(play.rows, chosen), rate_of(step, steps))


def local(play: Play, steps: int, variant: Variant) -> None:
    nodes = range(len(COUNTS))
    inner = [play.optimizer() for _ in nodes]
    common = play.now()
    velocity = [torch.zeros_like(weight) for weight in common]
    own, trained = [common for _ in nodes], [0 for _ in nodes]
    held: list[list[int]] = [[] for _ in nodes]
    for step in range(steps):
        chosen = rows_of_step(step, rows=len(play.rows), rows_per_step=ROWS, seed=play.seed)
        ends = (step + 1) % variant.steps == 0 or step + 1 == steps
        for node, (first, end) in enumerate(spans(COUNTS)):
            held[node] += chosen[first:end]
            if variant.small == "fewer steps" and len(held[node]) < EVEN and not ends:
                continue
            mine, held[node] = held[node], []
            play.put(own[node])
            play.backward(mine)
            play.update(inner[node], count(play.rows, mine), rate_of(step, steps) * factor(variant, COUNTS[node]))
            own[node], trained[node] = play.now(), trained[node] + count(play.rows, mine)
        if ends:
            for i, start in enumerate(common):
                delta = sum(
                    tokens / sum(trained) * (start - mine[i]) for tokens, mine in zip(trained, own, strict=True)
                )
                velocity[i] = variant.momentum * velocity[i] + delta
                common[i] = start - variant.outer_rate * (delta + variant.momentum * velocity[i])
            own, trained = [common for _ in nodes], [0 for _ in nodes]
            common = [weight.clone() for weight in common]
    play.put(common)


def factor(variant: Variant, rows: int) -> float:
    share = rows / EVEN
    return {"rate by root": math.sqrt(share), "rate by share": share}.get(variant.small, 1.0)


def count(rows: PackedRows, chosen: list[int]) -> int:
    return int(rows.targets[chosen].sum())


def rate_of(step: int, steps: int) -> float:
    return learning_rate(step, peak=RATE, kind="cosine", warmup_steps=5, total_steps=steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--base", type=Path, required=True, help="where the base is made, once")
    args = parser.parse_args()
    if not args.base.exists():
        play = Play(args.data, model_folder("tiny"), method="full", seed=1)
        exact(play, BASE_STEPS)
        play.model.save_pretrained(args.base)
    for variant in VARIANTS:
        play = Play(args.data, str(args.base), method="lora", seed=3407)
        exact(play, STEPS) if variant.steps == 0 else local(play, STEPS, variant)
        print(f"{play.loss():.4f}  {'exact' if variant.steps == 0 else variant}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
