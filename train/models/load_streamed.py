"""A model whose layers are streamed: built without their weights, which stay in the files or in main memory."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.errors import BadInput
from train.models import experts, four_bit
from train.models.backends import ModelSpec
from train.models.device import in_main_memory
from train.models.mapped_files import MappedFiles
from train.models.stream import LayerWeights, Stream, StreamedLayer, Weights
from train.models.wrapper import LoadOptions, changed_once_made, class_of

MAIN_MEMORY = 0.8
"""The part of the free main memory that the layers may take; else they are read from the files each time."""
Owners = dict[str, tuple[nn.Module, str]]


class LayerFiles:
    def __init__(self, files: MappedFiles, prefix: str) -> None:
        self.files, self.prefix = files, prefix
        self.stay: set[str] = set()
        """What a layer has beside its weights: small, and held all the time."""

    def read(self, index: int) -> Weights:
        weights = four_bit.from_files(experts.joined(self.files.below(f"{self.prefix}.{index}.")))
        return {name: weight for name, weight in weights.items() if name not in self.stay}

    def fill_buffers(self, index: int, layer: nn.Module, device: str) -> None:
        for name, buffer in list(layer.named_buffers()):
            if (stored_name := f"{self.prefix}.{index}.{name}") in self.files.files:
                path, _, kind = name.rpartition(".")
                layer.get_submodule(path)._buffers[kind] = self.files.tensor(stored_name).to(device, buffer.dtype)
                self.stay.add(name)

    def drop(self, index: int) -> None:
        """What was read of a layer need not be in memory any more."""
        self.files.drop(f"{self.prefix}.{index}.")


def load(spec: ModelSpec, config: Any, options: LoadOptions, form: str) -> Any:
    """The model as transformers loads it, but with streamed layers. `form`: as the base is to be held."""
    if form == "8bit":
        raise BadInput("weights: stream does not know 8 bit", fix="use load_in: 4bit or 16bit")
    files = MappedFiles(spec.folder)
    model, layers, prefix = without_layers(spec, config, options)
    source = LayerFiles(files, prefix_in(files, layers[0], prefix))
    quantise = form == "4bit" and not any(four_bit.QUANT_STATE in name for name in files.files)
    stream = Stream(source, spec.device)
    for index, layer in enumerate(layers):
        source.fill_buffers(index, layer, spec.device)
        weights = source.read(index)
        dtypes = {name: weight.dtype for name, weight in layer.named_parameters()}
        require_known(dtypes.keys() ^ weights.keys(), spec, config)
        if form == "4bit":
            in_four_bit(layer, weights, options["dtype"], quantise=quantise)
        owners = owners_of(layer, spec.device)
        if quantise:
            weights = {
                name: quantised(weight, owners[name], dtypes[name], spec.device) for name, weight in weights.items()
            }
        stream.add(LayerWeights(weights, dtypes), weights if quantise else None)
        layer.forward = StreamedLayer(layer, index, stream, owners)
        source.drop(index)
    if not stream.kept and fits_main_memory(stream, spec.device):
        stream.keep_all()
    model.get_decoder().layers.extend(layers)
    model.is_loaded_in_4bit = form == "4bit"  # by which peft knows it
    if not model.config.tie_word_embeddings:
        look_up_in_files(model, files, spec.device)
    model.stream = stream
    return model


def without_layers(spec: ModelSpec, config: Any, options: LoadOptions) -> tuple[Any, list[nn.Module], str]:
    """What is left of it, its layers without weights, and what their names begin with."""
    build = class_of(config)
    with torch.device("meta"):
        whole = build._from_config(config, dtype=options["dtype"], attn_implementation=options["attn_implementation"])
    experts.in_fp32(whole)
    layers = whole.get_decoder().layers
    prefix = next(name for name, module in whole.named_modules() if module is layers)
    rest = copy.deepcopy(config)
    if hasattr(rest, "quantization_config"):
        del rest.quantization_config  # it is of the layers

    empty = changed_once_made(build, lambda made: setattr(made.get_decoder(), "layers", nn.ModuleList()))
    model, info = quietly(empty.from_pretrained, spec.folder, config=rest, output_loading_info=True, **options)
    require_known(set(info["missing_keys"]), spec, config)
    return model, list(layers), prefix


def prefix_in(files: MappedFiles, layer: nn.Module, usual: str) -> str:
    """A wrapper's files may have other names before its layers than its class has; transformers knows them all."""
    wanted = {name for name, _ in layer.named_parameters()}
    prefixes = {name.partition(".layers.0.")[0] + ".layers" for name in files.files if ".layers.0." in name}
    fitting = [prefix for prefix in sorted(prefixes) if wanted <= files.below(f"{prefix}.0.").keys()]
    return usual if usual in fitting or not fitting else fitting[0]


def quietly(load: Any, *args: Any, **options: Any) -> Any:
    """transformers would list every weight of layers or towers as unexpected, and draw its progress."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    before = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)
    try:
        return load(*args, **options)
    finally:
        logging.set_verbosity(before)


def require_known(odd: set[str], spec: ModelSpec, config: Any) -> None:
    if odd:
        raise BadInput(
            f"weights: stream cannot read this {config.model_type} model layer by layer: {sorted(odd)[0]}",
            f"folder: {spec.folder}",
            "use weights: gpu",
        )


def in_four_bit(layer: nn.Module, weights: Weights, dtype: torch.dtype, *, quantise: bool) -> None:
    """Makes the layer's linear layers bitsandbytes' own, still without weights."""
    from bitsandbytes.nn import Linear4bit

    for name, module in list(layer.named_modules()):
        weight: Any = weights.get(f"{name}.weight")
        if not isinstance(module, nn.Linear) or not (quantise or four_bit.is_four_bit(weight)):
            continue
        quantisation = (True, "nf4") if quantise else (weight.compress_statistics, weight.quant_type)
        with torch.device("meta"):
            linear = Linear4bit(module.in_features, module.out_features, module.bias is not None, dtype, *quantisation)
        layer.set_submodule(name, linear.requires_grad_(False))


def owners_of(layer: nn.Module, device: str) -> Owners:
    """The module that owns each weight. In its place stands one number that is seen everywhere: a shape and a device,
    and no memory."""
    owners: Owners = {}
    for path, module in layer.named_modules():
        for kind, weight in list(module.named_parameters(recurse=False)):
            owners[f"{path}.{kind}" if path else kind] = (module, kind)
            empty = torch.zeros(1, dtype=weight.dtype, device=device).expand(weight.shape)
            module._parameters[kind] = four_bit.placeholder(weight, empty)
    return owners


def quantised(weight: Tensor, owner: tuple[nn.Module, str], dtype: torch.dtype, device: str) -> Tensor:
    module, kind = owner
    on_device, like = weight.to(device, dtype), module._parameters[kind]
    if type(like) is nn.Parameter:
        return on_device
    quantised_weight = four_bit.quantised(on_device, like)
    module.quant_state = None  # bitsandbytes would keep the scales of all layers on the card
    return quantised_weight


def fits_main_memory(stream: Stream, device: str) -> bool:
    """Whether the layers fit main memory beside the GPU; on a processor the mapped files are main memory already."""
    if device == "cpu" or in_main_memory(device):
        return False
    facts = Path("/proc/meminfo").read_text()
    free_kb = int(facts.partition("MemAvailable:")[2].split()[0])
    return stream.bytes < MAIN_MEMORY * free_kb * 1024


def look_up_in_files(model: Any, files: MappedFiles, device: str) -> None:
    """Takes the rows of the embeddings' table from its file: a step needs a few thousand of them."""
    embedding = model.get_input_embeddings()
    name = next(path for path, module in model.named_modules() if module is embedding) + ".weight"
    if type(embedding) is not nn.Embedding or name not in files.files:
        return
    table, dtype = files.tensor(name), embedding.weight.dtype
    empty = torch.zeros(1, dtype=dtype, device=device).expand(table.shape)
    embedding._parameters["weight"] = nn.Parameter(empty, requires_grad=False)
    embedding.forward = lambda ids: F.embedding(ids.cpu(), table).to(device, dtype)
