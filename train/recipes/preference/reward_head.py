"""The head of a reward model (loss=reward): a number for an answer, from the model's state at its last token.

It is what transformers' own class for such a family has under the name `score`, and stands beside the head that
continues a text. So what comes out, an adapter and this head, loads there: AutoModelForSequenceClassification with one
label, then PeftModel.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from train.errors import BadInput
from train.models.hf import whole_of
from train.models.load_streamed import quietly
from train.models.repeatable_random import key
from train.models.weights import SCORE, trained_weights
from train.models.wrapper import text_of

SPREAD = 0.02
"""How far its first values spread, where a model's config does not say."""


def add(model: Any, seed: int, device: str) -> None:
    """Puts it into a model that has its adapter. Its first values follow from the seed alone; it is kept in fp32."""
    whole = whole_of(model)
    size = require_head(model, whole.config)
    drawn = np.random.Generator(np.random.PCG64(key(seed, SCORE) % 2**63)).standard_normal((1, size))
    spread = getattr(text_of(whole.config), "initializer_range", None) or SPREAD
    head = nn.Linear(size, 1, bias=False, device=device, dtype=torch.float32)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(spread * drawn))
    whole.add_module(SCORE, head)
    saved = model.peft_config["default"]
    saved.task_type, saved.modules_to_save = "SEQ_CLS", [SCORE]


def class_that_scores(config: Any) -> tuple[Any, Any]:
    """The class with its config, that of one label. BadInput where transformers has none."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING as known

    if type(config) not in known:
        raise not_known(config, "has no class that gives a text a score")
    own = copy.deepcopy(config)
    own.num_labels = 1
    return own, known[type(config)]


def require_head(model: nn.Module, config: Any) -> int:
    """The width of the head there. BadInput where it is another one, or where layers that the adapter is for have other
    names."""
    own, theirs = class_that_scores(config)
    if hasattr(own, "quantization_config"):
        del own.quantization_config
    with torch.device("meta"):
        made = quietly(theirs._from_config, own)
    head = getattr(made, SCORE, None)
    if not isinstance(head, nn.Linear) or head.out_features != 1 or head.bias is not None:
        raise not_known(config, "scores a text with another head")
    layers = {name.partition(".lora_")[0].removeprefix("base_model.model.") for name in trained_weights(model)}
    if not {name.removesuffix(".base_layer") for name in layers} <= {name for name, _ in made.named_modules()}:
        raise not_known(config, "names the layers of its class that scores otherwise")
    return int(head.in_features)


def not_known(config: Any, why: str) -> BadInput:
    return BadInput(
        f"loss: for {config.model_type} transformers {why}, so nobody could load a reward model of it",
        fix="use a model of another family, as llama, qwen3 or gemma3; or loss=dpo, which needs no reward model",
    )


def rewards(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """One number for each sequence. In fp32 in any precision: the numbers of bf16 lie too far apart to be compared."""
    whole = whole_of(model)
    states = whole.get_decoder()(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False)[0]
    lines = torch.arange(len(states), device=states.device)
    last = states[lines, last_tokens(whole.config, batch)]
    found: Tensor = (last.float() * whole.get_submodule(SCORE).weight[0]).sum(-1)
    return found


def last_tokens(config: Any, batch: dict[str, Tensor]) -> Tensor:
    """The tokens at which transformers takes the score: the last ones that do not pad. A pad token that ends an answer,
    as the end of a turn does for some models, is passed over there, so it is here."""
    ids, pad = batch["input_ids"], text_of(config).pad_token_id
    places = torch.arange(ids.shape[1], device=ids.device)
    counts = places < batch["length"][:, None]
    if pad is not None:
        counts &= ids != pad
    found: Tensor = (places * counts).argmax(-1)
    return found
