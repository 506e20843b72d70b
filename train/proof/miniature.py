"""A model like the one that is meant, but small and with random weights: a few layers of each kind that it has."""

from __future__ import annotations

import contextlib
import copy
import math
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import torch

from train.models.load_streamed import quietly
from train.models.wrapper import class_of, is_wrapper, text_of

LEAST_LAYERS, MOST_LAYERS = 4, 8
HEADS, HEAD_DIM, WINDOW = 4, 16, 8
VOCABULARY, POSITIONS = 256, 128
SMALL = {
    "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": HEADS, "head_dim": HEAD_DIM,
    "vocab_size": VOCABULARY, "max_position_embeddings": POSITIONS, "original_max_position_embeddings": POSITIONS,
    "n_inner": 96, "ffn_dim": 96, "ffn_hidden_size": 96, "block_ff_dim": 96, "word_embed_proj_dim": 64,
    "sliding_window": WINDOW, "attention_chunk_size": WINDOW, "attention_window_size": WINDOW, "window_size": WINDOW,
    "rotary_dim": 8, "global_head_dim": HEAD_DIM, "query_pre_attn_scalar": HEAD_DIM, "block_auto_adjust_ff_dim": False,
    "num_global_key_value_heads": 2, "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": VOCABULARY,
    "laurel_rank": 8, "num_kv_shared_layers": 2,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 16, "mamba_expand": 2, "mamba_chunk_size": 16,
    "mamba_num_heads": 4, "mamba_head_dim": 32, "ssm_state_size": 16, "n_groups": 1, "mamba_n_groups": 1,
    "num_heads": 4, "state_size": 16, "expand": 2, "chunk_size": 16, "time_step_rank": 4, "mamba_dt_rank": 4,
    "lru_width": 64, "block_size": 16,
    "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2,
    "top_k_experts": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
    "shared_intermediate_size": 64, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
}  # fmt: skip
"""What a config says of a model's size, in the words of many families. What is 0 or not set in it stays so."""
OWN = {"head_dim": 2 * HEAD_DIM, "num_key_value_heads": 1}
"""What a layer has for itself, beside others."""
SCALE = 0.15
"""Far larger than a new model's, so that whatever a token sees decides its loss."""


def write(config: Any, folder: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = new(small(config))
        with torch.no_grad():
            for weight in model.parameters():
                if weight.ndim > 1:
                    weight.normal_(std=SCALE)
    vars(model).pop("_weight_conversions", None)  # it was not read from files: save it under the names of the hub's
    quietly(model.save_pretrained, folder)


def new(config: Any) -> Any:
    """Without files, transformers leaves to chance what a class sets as it is made (xIELU's numbers, of apertus). So
    the text part is made for itself, and a wrapper around it, whose towers take no memory so."""
    if not is_wrapper(config):
        return quietly(class_of(config)._from_config, config, dtype=torch.float32)
    model = quietly(class_of(config).from_pretrained, None, config=config, state_dict={}, dtype=torch.float32)
    decoder = model.get_decoder()
    made = quietly(type(decoder)._from_config, decoder.config, dtype=torch.float32)
    decoder.load_state_dict(made.state_dict())
    return model


def value(config: Any, name: str) -> Any:
    """What the config says of all layers; None where it says that of each."""
    try:
        return getattr(config, name, None)
    except RuntimeError:  # it differs from layer to layer
        return None


def small(config: Any) -> Any:
    """The config made small; of a wrapper its text part alone, its towers are not built."""
    if not is_wrapper(config):
        return small_text(config)
    made = copy.deepcopy(config)
    made.text_config = small_text(text_of(config))
    made.text_config.pad_token_id = 0  # in the place of a picture
    if hasattr(made, "quantization_config"):
        del made.quantization_config
    return made


def small_text(config: Any) -> Any:
    made = copy.deepcopy(config)
    overrides = shrink_layers(made, made.to_dict())
    for name, least in SMALL.items():
        if now := value(made, name):
            with contextlib.suppress(AttributeError):  # of what follows from others
                setattr(made, name, min(least, now) if type(least) is type(now) is int else least)
    shrink_heads(made, config)
    if getattr(made, "max_position_embeddings", None):
        made.max_position_embeddings = POSITIONS  # the proof's rows, also for a model of fewer
    shrink_positions(made)
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(made, name, None)
    for name in ("quantization_config", "auto_map"):
        if hasattr(made, name):
            delattr(made, name)
    if overrides:
        made.per_layer_config = overrides
    return made


def shrink_layers(made: Any, found: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The first layer of each kind, at least twice over; what a layer has for itself. Lists with an entry for each
    layer tell the kinds."""
    count = made.num_hidden_layers
    own = {int(at): sizes for at, sizes in (found.get("per_layer_config") or {}).items()}
    if own:
        made.per_layer_config = None
    by_layer = {name: each for name, each in found.items() if isinstance(each, list) and len(each) == count > 1}
    kinds = zip(*by_layer.values(), (own.get(at) for at in range(count)), strict=True)
    first = sorted({kind: at for at, kind in reversed(list(enumerate(map(repr, kinds))))}.values())[:MOST_LAYERS]
    chosen = first * math.ceil(LEAST_LAYERS / len(first))
    made.num_hidden_layers = len(chosen)
    for name, each in by_layer.items():
        setattr(made, name, [each[at] for at in chosen])
    return {
        new: own[at] | {name: OWN[name] for name in OWN.keys() & own[at]} for new, at in enumerate(chosen) if at in own
    }


def shrink_heads(made: Any, config: Any) -> None:
    """The model's kind stays: as many heads for keys as for queries, fewer, or one."""
    if keys := value(config, "num_key_value_heads"):
        made.num_key_value_heads = HEADS if keys == value(config, "num_attention_heads") else min(2, keys)
    if (turned := value(config, "qk_rope_head_dim")) and turned == value(config, "head_dim"):
        made.head_dim = made.qk_rope_head_dim


def shrink_positions(made: Any) -> None:
    """`longrope` has a factor for each pair of numbers of a head."""
    rope = getattr(made, "rope_parameters", None) or {}
    for one in [rope, *(value for value in rope.values() if isinstance(value, dict))]:
        for name in ("short_factor", "long_factor"):
            if name in one:
                one[name] = one[name][: int(HEAD_DIM * one.get("partial_rotary_factor", 1)) // 2]
        if sections := one.get("mrope_section"):
            one["mrope_section"] = shares(sections, int(HEAD_DIM * one.get("partial_rotary_factor", 1)) // 2)
        if "original_max_position_embeddings" in one:
            one["original_max_position_embeddings"] = POSITIONS


def shares(sizes: list[int], whole: int) -> list[int]:
    """The same number of shares, in about their proportion, of fewer."""
    ends = [total * whole // sum(sizes) for total in accumulate(sizes)]
    return [end - start for start, end in pairwise([0, *ends])]
