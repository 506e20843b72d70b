"""Where the model behind a name lies; what Motley brings along is made first, what the hub has is fetched."""

from __future__ import annotations

from pathlib import Path

from train.cache import cache_dir
from train.errors import BadInput
from train.plan.model.catalogue import Facts, Model, facts_of, read_config, resolve_model


def model_location(model: Model) -> str:
    """Where the tokenizer comes from: a folder (an embedded model is made first) or a hub id."""
    if model.folder:
        return str(model.folder)
    if model.embedded:
        from train.models.embedded import embedded_model

        return str(embedded_model(model.embedded, cache_dir() / "models" / model.name))
    assert model.hub
    return model.hub


def model_folder(name: str) -> str:
    """The whole model as a folder; from the hub it is fetched first."""
    model = resolve_model(name)
    location = model_location(model)
    if location != model.hub:
        return location
    from train.hub import hub_model

    return str(hub_model(location))


def shape_of(folder: Path) -> Facts | None:
    """The shape of a model; None for a family whose memory is not known."""
    try:
        return facts_of(read_config(folder), str(folder))
    except BadInput:
        return None
