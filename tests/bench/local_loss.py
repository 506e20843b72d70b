"""What `sync: local` costs in loss after equal rows: one process plays three unequal nodes, no network, no clock.

    ~/.cache/motley/envs/train/bin/python -m tests.bench.local_loss DATA --base FOLDER [exact] [1]

DATA is a prepared folder (`train prepare --dataset stdlib-qa --model tiny --max-seq-length 128 --out DATA`). First all
weights of `tiny` are trained to FOLDER, once. Then an adapter on it: exactly, or with one inner step a round, whose
deltas are on their way while the next one computes. Shares are 7 : 3 : 2. The figures are kept beside those of
slow_links.py, whose table has both.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.bench.page import keep, kept, put
from tests.bench.slow_links import FORMS, NAME, table
from train.data.mix_data_sets import rows_of_step
from train.data.rows import open_rows
from train.engine.make_optimizer import learning_rate
from train.models import backends
from train.models.backends import sums_over, to_tensors
from train.models.model_files import model_folder
from train.models.weights import trained_weights
from train.parallel.delta_exchange import Packed
from train.plan.settings.read_settings import load_config
from train.plan.speed.row_split import spans

COUNTS, RATE, BASE_STEPS = (7, 3, 2), 2e-3, 250
ROWS = sum(COUNTS)
USUAL = load_config({"model": "tiny"})


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
        tokens = int(self.rows.targets[mine].sum())
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
        (total, *_), targets = sums_over(self.module, self.held_out, list(range(some)), micro_batch=8, device="cpu")
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
    delta: torch.Tensor
    """That travels, as it arrives."""
    tokens: int = 0
    """It is of so many."""


def local(play: Play, steps: int) -> None:
    """A round is a step; its deltas arrive after the next one, the last ones at once."""
    common = play.now()
    velocity = torch.zeros_like(common)
    nodes = [Node(play.optimizer(), common, velocity) for _ in COUNTS]
    for step in range(steps):
        tokens = []
        for node, (first, end) in zip(nodes, spans(COUNTS), strict=True):
            play.put(node.own)
            tokens.append(play.step(node.optimizer, play.drawn(step)[first:end], rate_of(step, steps)))
            node.own = play.now()
        if step:
            common, velocity = arrive(nodes, common, velocity)
        for node, count in zip(nodes, tokens, strict=True):
            node.tokens, node.delta = count, Packed.of(common - node.own).read()
    play.put(arrive(nodes, common, velocity)[0])


def arrive(nodes: list[Node], common: torch.Tensor, velocity: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    whole = sum(node.tokens for node in nodes)
    average = torch.stack([node.delta * (node.tokens / whole) for node in nodes]).sum(0)
    velocity = USUAL.outer_momentum * velocity + average
    after = common - USUAL.outer_learning_rate * (average + USUAL.outer_momentum * velocity)
    for node in nodes:
        node.own = node.own + node.delta + after - common
    return after, velocity


def rate_of(step: int, steps: int) -> float:
    return learning_rate(step, peak=RATE, kind="cosine", warmup_steps=5, total_steps=steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("forms", nargs="*", default=[*FORMS], metavar="FORM", help=f"of {', '.join(FORMS)}")
    parser.add_argument("--base", type=Path, required=True, help="where the base is made, once")
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    if not args.base.exists():
        play = Play(args.data, str(model_folder("tiny")), method="full", seed=1)
        exact(play, BASE_STEPS)
        play.model.save_pretrained(args.base)
    for form in args.forms:
        play = Play(args.data, str(args.base), method="lora", seed=3407)
        (exact if form == "exact" else local)(play, args.steps)
        keep(NAME, f"adapter-{form}", {"loss": round(play.loss(), 4), "steps": args.steps})
    put(NAME, table(kept(NAME)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
