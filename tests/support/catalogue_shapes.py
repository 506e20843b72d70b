"""The catalogue's models whose weights do not follow from hidden, layers and heads: fused projections, convolutions,
recurrences, experts, tables for each layer. For these catalogue.yml has `counts`, counted here from what their
config.json says of the text:

    python -m tests.support.catalogue_shapes        prints them as catalogue.yml has them; needs torch
"""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import Any

SHAPES: dict[str, dict[str, Any]] = {
    "phi4-mini": {
        "model_type": "phi3", "hidden_size": 3072, "num_hidden_layers": 32, "num_attention_heads": 24,
        "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 200064, "tie_word_embeddings": True,
    },
    "phi4": {
        "model_type": "phi3", "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40,
        "num_key_value_heads": 10, "intermediate_size": 17920, "vocab_size": 100352, "tie_word_embeddings": False,
    },
    "lfm2.5-1.2b": {
        "model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 12288, "vocab_size": 65536, "tie_word_embeddings": True,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14],
    },
    "qwen3.5-0.8b": {
        "model_type": "qwen3_5_text", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 8,
        "num_key_value_heads": 2, "intermediate_size": 3584, "linear_num_value_heads": 16, "tie_word_embeddings": True,
    },
    "qwen3.5-2b": {
        "model_type": "qwen3_5_text", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 8,
        "num_key_value_heads": 2, "intermediate_size": 6144, "linear_num_value_heads": 16, "tie_word_embeddings": True,
    },
    "qwen3.5-4b": {
        "model_type": "qwen3_5_text", "hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 16,
        "num_key_value_heads": 4, "intermediate_size": 9216, "linear_num_value_heads": 32, "tie_word_embeddings": True,
    },
    "qwen3.5-9b": {
        "model_type": "qwen3_5_text", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 16,
        "num_key_value_heads": 4, "intermediate_size": 12288, "linear_num_value_heads": 32,
        "tie_word_embeddings": False,
    },
    "gemma4-e2b": {
        "model_type": "gemma4_text", "hidden_size": 1536, "num_hidden_layers": 35, "num_attention_heads": 8,
        "num_key_value_heads": 1, "intermediate_size": 6144, "num_kv_shared_layers": 20, "use_double_wide_mlp": True,
        "tie_word_embeddings": True,
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
    },
    "gemma4-e4b": {
        "model_type": "gemma4_text", "hidden_size": 2560, "num_hidden_layers": 42, "num_attention_heads": 8,
        "num_key_value_heads": 2, "intermediate_size": 10240, "num_kv_shared_layers": 18, "tie_word_embeddings": True,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 7,
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64,
        "num_key_value_heads": 8, "intermediate_size": 2880, "num_local_experts": 32, "vocab_size": 201088,
        "tie_word_embeddings": False,
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768,
        "num_experts": 128, "vocab_size": 151936, "tie_word_embeddings": False,
    },
}  # fmt: skip


def counts_of(name: str) -> dict[str, Any]:
    from transformers import AutoConfig  # noqa: PLC0415  the controller has none

    from train.proof.count_weights import count  # noqa: PLC0415

    settings = dict(SHAPES[name])
    ids = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    return asdict(count(AutoConfig.for_model(settings.pop("model_type"), **settings, **ids)))


def lines(found: dict[str, Any]) -> str:
    sizes = [f"      {name}: {value}" for name, value in found.items() if value and isinstance(value, int)]
    by_name = [wrapped(name, value) for name, value in found.items() if isinstance(value, dict) and value]
    return "\n".join(["    counts:", *sizes, *by_name])


def wrapped(name: str, found: dict[str, int]) -> str:
    start = f"      {name}: {{"
    pairs = ", ".join(f"{key}:~{value}" for key, value in found.items())  # no line ends between them
    return textwrap.fill(f"{pairs}}}", 116, initial_indent=start, subsequent_indent=" " * len(start)).replace("~", " ")


if __name__ == "__main__":
    for name in SHAPES:
        print(f"  {name}:\n{lines(counts_of(name))}")
