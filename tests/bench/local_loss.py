"""What `sync: local` costs in loss after equal rows: one process plays three unequal nodes, no network, no clock.

    ~/.cache/motley/envs/train/bin/python -m tests.bench.local_loss DATA --base FOLDER [PART …]

DATA is a prepared folder (`train prepare --dataset stdlib-qa --model tiny --max-seq-length 128 --out DATA`). First all
weights of `tiny` are trained to FOLDER, once. Then an adapter on it, or all weights of the random `tiny`, by each of
VARIANTS: exactly, and with a round's deltas on their way while the next one computes. Shares are 7 : 3 : 2. The figures
are kept beside those of slow_links.py, whose table has both.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.bench.page import keep, kept, put
from tests.bench.slow_links import NAME, table
from train.data.row_order import rows_of_step
from train.data.rows import PackedRows, open_rows
from train.engine.held_out_loss import loss_over
from train.engine.make_optimizer import learning_rate
from train.models import backends
from train.models.backends import to_tensors
from train.models.model_files import model_folder
from train.models.weights import trained_weights
from train.parallel.delta_exchange import Packed
from train.plan.speed.row_split import spans

COUNTS, RATE, BASE_STEPS = (7, 3, 2), 2e-3, 250
ROWS = sum(COUNTS)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Local steps in one of the forms that were weighed; 0 steps a round is exact sync."""

    steps: int = 4
    outer_rate: float = 0.7
    momentum: float = 0.5
    waits: bool = False
    """Whether a round's deltas are waited for, unrounded, as before they travelled during the next one."""


VARIANTS = {
    "exact": Variant(steps=0),
    "1": Variant(steps=1),
    "1 plain": Variant(steps=1, outer_rate=1.0, momentum=0.0),
    "4": Variant(),
    "16": Variant(steps=16),
    "4 waits": Variant(waits=True),
    "16 waits": Variant(steps=16, waits=True),
    "4 plain": Variant(outer_rate=1.0, momentum=0.0),
    "4 momentum 0.9": Variant(momentum=0.9),
}
CASES = ("adapter", "nothing")


class Play:
    """The nodes of one run, by turns in one model; the weights are one vector."""

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

    def put(self, values: torch.Tensor) -> None:
        torch.nn.utils.vector_to_parameters(values.clone(), self.weights)

    def now(self) -> torch.Tensor:
        return torch.nn.utils.parameters_to_vector(self.weights).detach().clone()

    def step(self, optimizer: torch.optim.AdamW, mine: list[int], rate: float) -> int:
        tokens = count(self.rows, mine)
        self.module(to_tensors(self.rows.batch(mine), "cpu")).backward()
        for weight in self.weights:
            weight.grad = weight.grad / tokens
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        return tokens

    def loss(self) -> float:
        some = min(64, len(self.held_out))
        total, targets = loss_over(self.module, self.held_out, list(range(some)), micro_batch=8, device="cpu")
        return total / targets

    def drawn(self, step: int) -> list[int]:
        return rows_of_step(step, rows=len(self.rows), rows_per_step=ROWS, seed=self.seed)


def exact(play: Play, steps: int) -> None:
    optimizer = play.optimizer()
    for step in range(steps):
        play.step(optimizer, play.drawn(step), rate_of(step, steps))


@dataclass
class Node:
    optimizer: torch.optim.AdamW
    own: torch.Tensor
    tokens: int = 0
    sent: list[tuple[int, torch.Tensor]] = field(default_factory=list)
    """The tokens and the delta that travel."""


def local(play: Play, steps: int, variant: Variant) -> None:
    common = play.now()
    nodes = [Node(play.optimizer(), common) for _ in COUNTS]
    velocity = torch.zeros_like(common)
    for step in range(steps):
        for node, (first, end) in zip(nodes, spans(COUNTS), strict=True):
            play.put(node.own)
            node.tokens += play.step(node.optimizer, play.drawn(step)[first:end], rate_of(step, steps))
            node.own = play.now()
        last = step + 1 == steps
        if (step + 1) % variant.steps and not last:
            continue
        if not variant.waits:
            common, velocity = arrive(nodes, common, velocity, variant)
        for node in nodes:
            delta = common - node.own
            node.sent = [(node.tokens, delta if variant.waits else Packed.of(delta).read())]
            node.tokens = 0
        if variant.waits or last:
            common, velocity = arrive(nodes, common, velocity, variant)
    play.put(common)


def arrive(
    nodes: list[Node], common: torch.Tensor, velocity: torch.Tensor, variant: Variant
) -> tuple[torch.Tensor, torch.Tensor]:
    sent = [node.sent.pop() for node in nodes if node.sent]
    if not sent:
        return common, velocity
    whole = sum(tokens for tokens, _ in sent)
    average = torch.stack([delta * (tokens / whole) for tokens, delta in sent]).sum(0)
    velocity = variant.momentum * velocity + average
    after = common - variant.outer_rate * (average + variant.momentum * velocity)
    for node, (_, delta) in zip(nodes, sent, strict=True):
        node.own = node.own + delta + after - common
    return after, velocity


def count(rows: PackedRows, chosen: list[int]) -> int:
    return int(rows.targets[chosen].sum())


def rate_of(step: int, steps: int) -> float:
    return learning_rate(step, peak=RATE, kind="cosine", warmup_steps=5, total_steps=steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parts = [f"{case}-{variant}" for case in CASES for variant in VARIANTS]
    parser.add_argument("parts", nargs="*", default=parts, metavar="PART", help=f"of {', '.join(parts)}")
    parser.add_argument("--base", type=Path, required=True, help="where the base is made, once")
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    tiny = str(model_folder("tiny"))
    if not args.base.exists():
        play = Play(args.data, tiny, method="full", seed=1)
        exact(play, BASE_STEPS)
        play.model.save_pretrained(args.base)
    for part in args.parts:
        case, _, name = part.partition("-")
        base, method = (str(args.base), "lora") if case == "adapter" else (tiny, "full")
        play = Play(args.data, base, method=method, seed=3407)
        variant = VARIANTS[name]
        exact(play, args.steps) if not variant.steps else local(play, args.steps, variant)
        keep(NAME, part, {"loss": round(play.loss(), 4), "steps": args.steps})
    put(NAME, table(kept(NAME)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
