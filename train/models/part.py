"""A part of a model: some layers of it, the others are elsewhere. The model is one of the family's own class, with the
names and numbers of the whole; what is elsewhere has a shape and no memory, and lets its input pass. Adapters are put
around it as around what is here, so every part has the whole adapter, with the first weights of a model in one piece.

    load    the layers [first, end) from the files; the embeddings come with the first, the head with the last
    Part    the part as a function: tokens or a hidden state in, a hidden state out

A hidden state comes in and leaves between two layers, where no family does anything to it: what it does to embeddings
(granite scales them) and behind the last layer stays with the part that has these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from train.models.backends import Batch, ModelSpec
from train.models.load_streamed import quietly
from train.models.wrapper import LoadOptions, changed_once_made, class_of, text_of


class Part:
    def __init__(self, first: int, end: int, layers: int) -> None:
        self.first, self.end, self.layers = first, end, layers
        self.came: Tensor | None = None
        self.left: Tensor | None = None

    @property
    def begins(self) -> bool:
        return self.first == 0

    @property
    def ends(self) -> bool:
        return self.end == self.layers

    def enter(self, hidden: Tensor, *_: Any, **__: Any) -> Tensor:
        """Stands in place of the last layer before those that are here."""
        return hidden if self.came is None else self.came

    def leave(self, hidden: Tensor, *_: Any, **__: Any) -> Tensor:
        """Stands in place of the first layer behind them."""
        self.left = hidden
        return hidden

    def states(self, backbone: nn.Module, batch: Batch, hidden: Tensor | None) -> Tensor:
        """`hidden`: what the part before this one has made of the batch."""
        fed = {"input_ids": batch["input_ids"]} if hidden is None else {"inputs_embeds": hidden.detach()}
        self.came = hidden
        try:
            out: Tensor = backbone(**fed, position_ids=batch["position_ids"], use_cache=False)[0]
            return out if self.ends or self.left is None else self.left
        finally:
            self.came = self.left = None


def load(spec: ModelSpec, config: Any, options: LoadOptions) -> tuple[Any, Mapping[str, Any]]:
    """The model as transformers loads it, but for the layers that are elsewhere; and what it reports of that."""
    assert spec.layers is not None
    part = Part(*spec.layers, text_of(config).num_hidden_layers)
    elsewhere: dict[int, nn.Module] = {}
    tied = bool(config.tie_word_embeddings)
    config.tie_word_embeddings = tied and part.ends
    own = changed_once_made(class_of(config), lambda made: keep_only(made, part, elsewhere, tied=tied))
    model, info = quietly(own.from_pretrained, spec.folder, config=config, output_loading_info=True, **options)
    config.tie_word_embeddings = model.config.tie_word_embeddings = tied
    for index, layer in elsewhere.items():
        model.get_decoder().layers[index] = passing(layer, index, part)
    model.part = part
    return model, info


def keep_only(model: Any, part: Part, elsewhere: dict[int, nn.Module], *, tied: bool) -> None:
    layers = model.get_decoder().layers
    for index in set(range(len(layers))) - set(range(part.first, part.end)):
        elsewhere[index], layers[index] = layers[index], nn.Identity()
    if not part.ends:
        model.set_output_embeddings(nn.Identity())
    if not part.begins and not (part.ends and tied):
        model.set_input_embeddings(nn.Identity())


def passing(layer: nn.Module, index: int, part: Part) -> nn.Module:
    """Each weight is one number that is seen everywhere, in main memory; so is the adapter that is put around it."""
    for module in layer.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            empty = torch.zeros(1, dtype=weight.dtype).expand(weight.shape)
            module._parameters[name] = nn.Parameter(empty, requires_grad=False)
    layer.forward = part.leave if index == part.end else part.enter if index == part.first - 1 else pass_on
    return layer


def pass_on(hidden: Tensor, *_: Any, **__: Any) -> Tensor:
    return hidden
