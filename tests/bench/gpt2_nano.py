"""nanoGPT's small CPU setting with transformers' GPT-2 class, on our rows: what `bench pretrain` compares with.

    ~/.cache/motley/envs/train/bin/python -m tests.bench.gpt2_nano ROWS STEPS SHAPE

The loop is nanoGPT's: AdamW with betas 0.9 and 0.99, decay 0.1 on what has two dimensions, 100 steps of warm-up to
1e-3, cosine to 1e-4, gradients clipped at 1, no dropout.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from train.data.mix_data_sets import rows_of_step
from train.data.rows import open_rows, read_index
from train.models import hf
from train.models.backends import LossModule, sums_over, to_tensors

PEAK, LEAST, WARM_UP = 1e-3, 1e-4, 100


def main(folder: Path, steps: int, shape: dict[str, Any]) -> dict[str, Any]:
    rows, held_out = open_rows(folder), open_rows(folder, "eval")
    torch.manual_seed(shape["seed"])
    model = GPT2LMHeadModel(configured(shape, read_index(folder)["vocabulary"]))
    module = LossModule(model, hf.loss_sum)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.99))
    losses, since = {}, time.perf_counter()
    model.train()
    for step in range(steps):
        chosen = rows_of_step(step, rows=len(rows), rows_per_step=shape["rows_per_step"], seed=shape["seed"])
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        (module(to_tensors(rows.batch(chosen), "cpu")) / int(rows.targets[chosen].sum())).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 250 == 0 or step + 1 == steps:
            every = list(range(len(held_out)))
            (total, *_), targets = sums_over(module, held_out, every, micro_batch=32, device="cpu")
            losses[step + 1] = total / targets
            print(f"step {step + 1}  held-out loss {losses[step + 1]:.4f}", file=sys.stderr, flush=True)
    weights = sum(p.numel() for p in model.parameters())
    seconds = round(time.perf_counter() - since, 1)
    return {"weights": weights, "steps": steps, "loss": losses[steps], "losses": losses, "seconds": seconds}


def configured(shape: dict[str, Any], vocabulary: int) -> GPT2Config:
    return GPT2Config(
        vocab_size=vocabulary,
        n_positions=shape["max_seq_length"],
        n_embd=shape["hidden_size"],
        n_layer=shape["layers"],
        n_head=shape["heads"],
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="sdpa",
    )


def rate(step: int, steps: int) -> float:
    if step < WARM_UP:
        return PEAK * (step + 1) / (WARM_UP + 1)
    done = (step - WARM_UP) / max(1, steps - WARM_UP)
    return LEAST + 0.5 * (1 + math.cos(math.pi * done)) * (PEAK - LEAST)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))))
