"""The catalogue's models whose weights do not follow from hidden, layers and heads: fused projections, convolutions,
recurrences, experts, tables for each layer. For these catalogue.yml has `counts`, counted here from what their
config.json says of the text:

    python -m tests.support.catalogue_shapes        prints them as catalogue.yml has them; needs torch
"""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import Any

from train.plan.model.catalogue import Facts, resolve_model

SHAPES: dict[str, dict[str, Any]] = {
    "phi4-mini": {},
    "phi4": {},
    "lfm2.5-1.2b": {"full_attn_idxs": [2, 5, 8, 10, 12, 14]},
    "qwen3.5-0.8b": {"linear_num_value_heads": 16},
    "qwen3.5-2b": {"linear_num_value_heads": 16},
    "qwen3.5-4b": {"linear_num_value_heads": 32},
    "qwen3.5-9b": {"linear_num_value_heads": 32},
    "gemma4-e2b": {
        "num_kv_shared_layers": 20, "use_double_wide_mlp": True,
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
    },
    "gemma4-e4b": {
        "num_kv_shared_layers": 18,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 7,
    },
    "gpt-oss-20b": {"num_local_experts": 32},
    "qwen3-30b-a3b": {"head_dim": 128, "moe_intermediate_size": 768, "num_experts": 128},
}  # fmt: skip
"""What their config.json says beside the sizes that catalogue.yml has."""
SIZES = {
    "hidden_size": "hidden", "num_hidden_layers": "layers", "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads", "intermediate_size": "intermediate", "vocab_size": "vocab",
    "tie_word_embeddings": "tied",
}  # fmt: skip

WRITTEN = ("linear", "others", "table", "output", "rest", "largest")


def counts_of(name: str) -> dict[str, Any]:
    from transformers import AutoConfig  # noqa: PLC0415  the controller has none

    from train.proof.count_weights import count  # noqa: PLC0415

    facts = resolve_model(name).facts
    assert isinstance(facts, Facts)
    sizes = {theirs: getattr(facts, ours) for theirs, ours in SIZES.items()}
    ids = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    return asdict(count(AutoConfig.for_model(facts.family, **sizes, **SHAPES[name], **ids)))


def lines(found: dict[str, Any]) -> str:
    sizes = [f"      {name}: {value}" for name, value in found.items() if name in WRITTEN and value]
    by_name = [wrapped(name, value) for name, value in found.items() if isinstance(value, dict) and value]
    return "\n".join(["    counts:", *sizes, *by_name])


def wrapped(name: str, found: dict[str, int]) -> str:
    start = f"      {name}: {{"
    pairs = ", ".join(f"{key}:~{value}" for key, value in found.items())  # no line ends between them
    return textwrap.fill(f"{pairs}}}", 116, initial_indent=start, subsequent_indent=" " * len(start)).replace("~", " ")


if __name__ == "__main__":
    for name in SHAPES:
        print(f"  {name}:\n{lines(counts_of(name))}")
