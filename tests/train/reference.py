"""The truth that every run is compared with: plain PyTorch, one process, one batch a step. It shares nothing with the
loop but the data on disk and the first weights; it has its own row order, loss, schedule and update."""

import math

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from train.rows import open_rows


def losses(
    model_folder, data, *, steps, rows_per_step, rate=2e-3, warmup=5, clip=0.3, seed=3407, full=False, of_steps=None
):
    """Of the first `steps` steps of a run of `of_steps` (as many, if none is given)."""
    rows = open_rows(data)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32, attn_implementation="eager")
    if not full:
        torch.manual_seed(seed)
        lora = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model, lora)
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0)
    stream = np.concatenate([np.random.Generator(np.random.PCG64([seed, e])).permutation(len(rows)) for e in range(99)])
    found = []
    for step in range(steps):
        total, count = torch.zeros(()), 0
        for row in stream[step * rows_per_step : (step + 1) * rows_per_step]:
            start, end = rows.rows[row], rows.rows[row + 1]
            for a, b in zip(rows.samples[start:end], rows.samples[start + 1 : end + 1], strict=True):
                # Every sample alone in its own forward pass: packing must make no difference.
                tokens = torch.tensor(rows.tokens[a:b].astype(int))
                scores = model(input_ids=tokens[None]).logits[0, :-1].log_softmax(-1)
                wanted = torch.tensor(rows.trained[a + 1 : b].astype(bool))
                total = total - scores[torch.arange(b - a - 1), tokens[1:]][wanted].sum()
                count += int(wanted.sum())
        loss = total / count
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, clip)
        progress = (step - warmup) / max(1, (of_steps or steps) - warmup)
        factor = (step + 1) / warmup if step < warmup else 0.5 * (1 + math.cos(math.pi * progress))
        optimizer.param_groups[0]["lr"] = rate * factor
        optimizer.step()
        found.append(loss.item())
    return found
