"""Small models of other families, with random weights: their attention as the real ones have it."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 1024, "max_position_embeddings": 512,
}  # fmt: skip


def make(family: str, folder: Path, **other: int) -> Path:
    """Queries and keys are large, so that what a token attends to decides its loss. Its weights are numbers of bf16."""
    torch.manual_seed(5)
    own = {"query_pre_attn_scalar": 1} if family == "gemma2" else {}
    config = AutoConfig.for_model(family, **(SIZES | own | other), pad_token_id=0, bos_token_id=1, eos_token_id=2)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                weight.mul_(8)
            weight.copy_(weight.bfloat16())
    model.save_pretrained(folder)
    return folder
