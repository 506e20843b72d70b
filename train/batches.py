"""From rows to tensors. The position ids, new for each sample, are all that keeps packed samples apart: given them and
no attention mask, transformers builds a block-diagonal mask (shown in tests/train/test_packing_exact.py)."""

from collections.abc import Mapping
from typing import Any

import torch

FIELDS = ("input_ids", "labels", "position_ids")


def to_tensors(batch: Mapping[str, Any], device: str) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(batch[name]).to(device, non_blocking=True) for name in FIELDS}
