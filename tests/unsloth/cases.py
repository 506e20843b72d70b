"""What both backends are given: a micro-batch of two rows that are together longer than max_seq_length."""

import torch
from torch import Tensor

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
PRECISIONS = {"fp32": {}, "bf16": {"precision": "bf16"}, "nf4": {"precision": "bf16", "load_in": "4bit"}}
EXACT = {"fp32": "fp32", "bf16": "fp32", "nf4": "nf4 in fp32"}
"""The same weights, computed in fp32."""
CASES = [(family, precision) for family in FAMILIES for precision in PRECISIONS]
ALWAYS = {*((FAMILIES[0], precision) for precision in PRECISIONS), (FAMILIES[-1], "fp32")}
"""The others only in test-long."""
ROW_LENGTH = 10
LORA = {"lora_r": 8, "lora_alpha": 16, "max_seq_length": ROW_LENGTH, "seed": 1}
Batch = dict[str, Tensor]


def sample(seed: int, length: int) -> Batch:
    """A third of it is a prompt."""
    ids = torch.randint(4, 1000, (length,), generator=torch.Generator().manual_seed(seed))
    labels = ids.clone()
    labels[: max(1, length // 3)] = -100
    return {"input_ids": ids, "labels": labels, "position_ids": torch.arange(length)}


def padding(length: int) -> Batch:
    nothing = torch.zeros(length, dtype=torch.long)
    return {"input_ids": nothing, "labels": nothing - 100, "position_ids": torch.arange(length)}


def row(*samples: Batch) -> Batch:
    return {name: torch.cat([one[name] for one in samples])[None] for name in samples[0]}


def rows(*each: Batch) -> Batch:
    return {name: torch.cat([one[name] for one in each]) for name in each[0]}


SAMPLES = [sample(1, 5), sample(2, 4), sample(3, 8)]
PACKED = rows(row(*SAMPLES[:2], padding(1)), row(SAMPLES[2], padding(2)))
ALONE = [row(one) for one in SAMPLES]
TOO_LONG = row(sample(4, ROW_LENGTH + 4))


def without_resets(batch: Batch) -> Batch:
    shape = batch["input_ids"].shape
    return batch | {"position_ids": torch.arange(shape[1]).expand(shape)}
