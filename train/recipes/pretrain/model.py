"""A language model that nobody has trained yet: a Llama in transformers' own class, its first weights by the seed.

Weights are drawn in fp32 on the processor, in the order of their names. What a block adds to the stream that runs
through all of them starts smaller the deeper the model is (GPT-2's rule), or deep models would start out loud.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from train.models.backends import LossModule, loss_module
from train.plan.model.catalogue import Facts
from train.plan.placement.decisions import Decisions

SPREAD = 0.02
ENDS = ("o_proj.weight", "down_proj.weight")
"""The ends of the names of those weights that add their result to the stream."""


def build(facts: Facts, decisions: Decisions, *, end_id: int, seed: int, device: str) -> LossModule:
    """`end_id`: the tokenizer's mark before and after a text."""
    from train.models import hf

    model = empty(facts, end_id)
    first_weights(model, facts.layers, seed)
    model.to(device)
    if decisions.gradient_checkpointing != "false":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return loss_module(hf, hf.in_train_mode(model), decisions.precision, device)


def empty(facts: Facts, end_id: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    config = LlamaConfig(
        vocab_size=facts.vocab,
        hidden_size=facts.hidden,
        intermediate_size=facts.intermediate,
        num_hidden_layers=facts.layers,
        num_attention_heads=facts.heads,
        num_key_value_heads=facts.kv_heads,
        head_dim=facts.head_dim,
        max_position_embeddings=facts.positions,
        tie_word_embeddings=facts.tied,
        bos_token_id=end_id,
        eos_token_id=end_id,
        pad_token_id=None,  # a padding token's own weights would never be trained
        initializer_range=SPREAD,
        attn_implementation="sdpa",
        dtype="float32",
    )
    config.architectures = ["LlamaForCausalLM"]  # by which other programs know what the files are
    return LlamaForCausalLM(config)


def first_weights(model: nn.Module, layers: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            if weight.dim() == 1:
                weight.fill_(1.0)
                continue
            spread = SPREAD / math.sqrt(2 * layers) if name.endswith(ENDS) else SPREAD
            weight.normal_(0.0, spread, generator=random)
