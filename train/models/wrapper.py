"""Most new small models are wrappers with pictures or sounds around a text model. Of such a model the text part alone
is built, within the wrapper's own class: its weights keep the wrapper's names, so transformers finds them in the files,
and whatever is trained of it is the wrapper's.

    text_of     the text part's config, which of a plain text model is its own
    class_of    what builds the model: a wrapper without its towers
    targets_of  which layers an adapter is for, said so that it leaves out the towers of the whole wrapper
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Required, TypedDict

from train.errors import BadInput

if TYPE_CHECKING:
    import torch
    from torch import nn


class LoadOptions(TypedDict, total=False):
    """What transformers is told when it loads a model."""

    dtype: Required[torch.dtype]
    attn_implementation: Required[str]
    local_files_only: bool
    trust_remote_code: bool
    device_map: dict[str, str]
    quantization_config: Any


def text_of(config: Any) -> Any:
    return getattr(config, "text_config", None) or config


def is_wrapper(config: Any) -> bool:
    return text_of(config) is not config


def class_of(config: Any) -> Any:
    whole = whole_class_of(config)
    if not is_wrapper(config):
        return whole
    return changed_once_made(
        whole, lambda made: drop_beside(made, {id(made.get_decoder()), id(made.get_output_embeddings())})
    )


def whole_class_of(config: Any) -> Any:
    """BadInput where transformers has none."""
    from transformers.models.auto import modeling_auto as known

    mappings = [known.MODEL_FOR_CAUSAL_LM_MAPPING]
    if is_wrapper(config):
        mappings = [known.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, known.MODEL_FOR_MULTIMODAL_LM_MAPPING]
    whole = next((mapping[type(config)] for mapping in mappings if type(config) in mapping), None)
    if whole is None:
        raise BadInput(
            f"transformers has no {config.model_type} model that continues a text", fix="choose another model"
        )
    return whole


def changed_once_made(whole: Any, change: Callable[[Any], None]) -> Any:
    """The class, whose models are changed as soon as they are made. transformers makes them without memory and fills in
    what stays, so what is dropped costs nothing."""

    def init(self: Any, config: Any, *args: Any, **more: Any) -> None:
        whole.__init__(self, config, *args, **more)
        change(self)

    return type(whole.__name__, (whole,), {"__init__": init, "__module__": whole.__module__})


def drop_beside(module: nn.Module, kept: set[int]) -> None:
    for name, child in list(module.named_children()):
        if id(child) in kept:
            continue
        if kept.isdisjoint(id(part) for part in child.modules()):
            delattr(module, name)
        else:
            drop_beside(child, kept)


def targets_of(
    model: Any, wanted: str | list[str], linear: Iterable[str], *, besides: Iterable[str] = ()
) -> str | list[str]:
    """`linear`: the names of the layers that `all-linear` takes. `besides`: what is adapted by its own name."""
    named = {name.removesuffix(".weight").rpartition(".")[2] for name in besides}
    if not (named or is_wrapper(model.config)):
        return wanted
    kinds = sorted(({name.rpartition(".")[2] for name in linear} if isinstance(wanted, str) else set(wanted)) - named)
    if not is_wrapper(model.config):
        return kinds
    decoder = model.get_decoder()
    path = next(name for name, module in model.named_modules() if module is decoder)
    return rf"{re.escape(path)}\.(.*\.)?({'|'.join(map(re.escape, kinds))})"
