"""transformers + peft: runs on anything."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from train.errors import BadInput, first_line
from train.models import dropout, experts, load_streamed, part, row_noise, wrapper
from train.models import lora_init as first_weights
from train.models.backends import ModelSpec
from train.plan.model import weight_files
from train.plan.model.catalogue import form_on_disk, positions
from train.plan.model.memory import LOSS_CHUNK_TOKENS
from train.plan.settings.read_settings import nearest

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def build(spec: ModelSpec) -> nn.Module:
    import peft

    dropped = dropout.in_words(dropout.switched_off(config_of(spec.folder)))
    model = _base(spec)
    if spec.weights != "stream":  # else its layers do already
        experts.in_fp32(model)
    model.config.use_cache = False
    if spec.weights == "stream":
        model.enable_input_require_grads()  # each layer is a checkpoint of its own
    elif spec.gradient_checkpointing != "false":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    if spec.method == "full":
        return with_noise(in_train_mode(model.requires_grad_(True), dropped), spec)
    model.requires_grad_(False)
    if spec.adapter is not None:
        return in_train_mode(peft.PeftModel.from_pretrained(model, str(spec.adapter), is_trainable=True), dropped)
    if spec.method == "base":
        return in_train_mode(model)
    require_targets(model, spec)
    torch.manual_seed(spec.seed)
    model = in_train_mode(peft.get_peft_model(model, _lora(model, spec)), dropped)
    if spec.lora_init != "default":
        first_weights.begin(model, spec.lora_init, spec.seed)
    return with_noise(model, spec)


def with_noise(model: nn.Module, spec: ModelSpec) -> nn.Module:
    embedding = whole_of(model).get_input_embeddings()
    row_noise.put(model, embedding, alpha=spec.neftune_alpha, dropout=spec.lora_dropout, seed=spec.seed)
    return model


def whole_of(model: nn.Module) -> Any:
    """Without the adapter's wrapper."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def loss_sum(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    backbone = whole_of(model).get_decoder()
    states = backbone(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False)[0]
    return loss_of_states(model, states, batch)


def loss_of_states(model: nn.Module, states: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """The scores over the vocabulary are far larger than all that they come from: they exist for a chunk of the target
    tokens at a time, and of a prompt not at all."""
    whole = whole_of(model)
    targets = batch["labels"][:, 1:]
    kept = targets != -100
    return torch.stack(in_chunks(partial(_chunk_loss, head_of(whole)), states[:, :-1][kept], targets[kept])).sum()


def in_chunks(compute: Callable[[Tensor, Tensor], Tensor], states: Tensor, targets: Tensor) -> list[Tensor]:
    """What is computed of some tokens at a time; of several such parts it is computed again for the gradient."""
    chunks = list(zip(states.split(LOSS_CHUNK_TOKENS), targets.split(LOSS_CHUNK_TOKENS), strict=True))
    if len(chunks) == 1 or not torch.is_grad_enabled():
        return [compute(*chunk) for chunk in chunks]
    return [checkpoint(compute, *chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks]


def head_of(whole: Any) -> Any:
    """The model as it computes scores from the backbone's states, with all that a family does to them: gemma2 caps
    them, granite divides them. Its weights are the same ones. A wrapper's backbone is below another module."""
    head, backbone = copy.copy(whole), whole.get_decoder()
    around = next(part for part in whole._modules.values() if backbone in part.modules())
    head._modules = {name: Given() if part is around else part for name, part in whole._modules.items()}
    return head


class Given(nn.Module):  # type: ignore[misc]
    """Stands in a backbone's place: its states are what comes in."""

    @property
    def decoder(self) -> Given:
        """What a family's head asks for below its model (opt)."""
        return self

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> Any:
        return States(inputs_embeds)


class States:
    """What a backbone returns. Some heads ask for more of it, and compute without."""

    def __init__(self, states: Tensor) -> None:
        self.last_hidden_state = states

    def __getitem__(self, at: Any) -> Any:
        return (self.last_hidden_state,)[at]

    def __getattr__(self, _: str) -> None:
        return None


def _chunk_loss(head: Any, states: Tensor, targets: Tensor) -> Tensor:
    scores = head(inputs_embeds=states[None], use_cache=False).logits[0]
    return F.cross_entropy(scores.float(), targets, reduction="sum")


def _base(spec: ModelSpec) -> Any:
    dtype = DTYPES["fp32" if spec.method == "full" else spec.precision]
    config = config_of(spec.folder)
    dropout.switched_off(config)
    require_positions(config, spec)
    options = wrapper.LoadOptions(
        dtype=dtype, attn_implementation=attention_of(config), local_files_only=True, trust_remote_code=False
    )
    on_disk = form_on_disk(getattr(config, "quantization_config", None), spec.folder)
    form = on_disk or spec.load_in
    if spec.device != "cpu" or form != "16bit":  # transformers puts a quantised base on any card that it sees
        options["device_map"] = {"": spec.device}
    if form != "16bit" and importlib.util.find_spec("bitsandbytes") is None:
        raise BadInput(f"load_in: {form} needs bitsandbytes, which is not installed here", fix="use a node with a GPU")
    try:
        if spec.weights == "stream":
            return _one_form(load_streamed.load(spec, config, options, form), dtype)
        if form != on_disk:  # else the files say how
            options["quantization_config"] = _quantisation(form, dtype)
        if spec.layers:
            model, info = part.load(spec, config, options)
            require_all(info, spec)
            return _one_form(model, dtype)
        load = wrapper.class_of(config).from_pretrained
        model, info = load_streamed.quietly(load, spec.folder, config=config, output_loading_info=True, **options)
        require_all(info, spec)
        return _one_form(model, dtype)
    except (OSError, ValueError, KeyError) as error:
        raise not_loaded(error, spec.folder) from error


def require_all(info: Mapping[str, Any], spec: ModelSpec) -> None:
    """BadInput where transformers has drawn weights by lot: weight_files.py knows those of some families only."""
    if missing := sorted(info["missing_keys"]):
        raise weight_files.not_whole("lack", missing, spec.folder)


def _quantisation(form: str, dtype: torch.dtype) -> Any:
    from transformers import BitsAndBytesConfig

    if form == "4bit":
        return BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype
        )
    return BitsAndBytesConfig(load_in_8bit=True) if form == "8bit" else None


def _one_form(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """4-bit layers that compute in this precision, whatever their files say, and keep to one form: for evaluation
    bitsandbytes turns them into another on CPUs with AVX512-BF16, less exact, without gradients, and permanently."""
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
            module.compute_dtype = dtype
    return model


def config_of(folder: str) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise not_loaded(error, folder) from error


def not_loaded(error: Exception, folder: str) -> BadInput:
    return BadInput(f"the model cannot be loaded: {first_line(error)}", f"folder: {folder}")


def require_positions(config: Any, spec: ModelSpec) -> None:
    """Beyond them unsloth stretches positions by itself, which nobody else does, and `dynamic` and `longrope` ones
    follow from the longest row that is computed at a time. Who only asks a model has no rows."""
    most = positions(wrapper.text_of(config).to_dict())
    trains = spec.method != "base" and spec.adapter is None
    if trains and most and spec.max_seq_length > most:
        raise BadInput(
            f"rows of {spec.max_seq_length} tokens, and this model was made for {most}",
            f"folder: {spec.folder}",
            f"prepare the data set with max_seq_length={most}",
        )


def attention_of(config: Any) -> str:
    """sdpa, but for families that have none, or cap their attention's scores (gemma2): it leaves the cap out."""
    text = wrapper.text_of(config)
    has_sdpa = wrapper.class_of(config)._supports_sdpa and not getattr(text, "attn_logit_softcapping", None)
    return "sdpa" if has_sdpa else "eager"


def without_adapter(model: Any) -> list[str]:
    """The linear layers that `all-linear` has left out, but for the output."""
    from transformers.pytorch_utils import Conv1D

    output = whole_of(model).get_output_embeddings()
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, (nn.Linear, Conv1D)) and module is not output
        if not name.endswith(".base_layer") and ".lora_" not in name
    ]


def require_targets(model: nn.Module, spec: ModelSpec) -> None:
    """BadInput for what is no linear layer, by its name or the end of its path. Embeddings and output stay as the base
    has them: they may be streamed, cut, or one weight."""
    linear, fused = without_adapter(model), experts.fused(model)
    known = {name.rpartition(".")[2] for name in (*linear, *fused)}
    for target in spec.targets if isinstance(spec.targets, list) else []:
        ends_a_path = not fused and any(name.endswith(f".{target}") for name in linear)
        if target not in known and not ends_a_path:
            raise BadInput(
                f"lora_targets: the model has no linear layer '{target}'{nearest(target, known)}",
                f"folder: {spec.folder}",
                "all-linear takes every linear layer",
            )


def _lora(model: nn.Module, spec: ModelSpec) -> Any:
    import peft

    linear = without_adapter(model)
    named = experts.parameters(model, spec.targets, linear)
    own = {"dora": spec.dora, "lora_init": spec.lora_init != "default", "lora_dropout": bool(spec.lora_dropout)}
    if named and (wrong := [name for name, is_set in own.items() if is_set]):
        raise BadInput(
            f"{wrong[0]}: PEFT has it for no layer whose experts are one weight", fix=f"leave {wrong[0]} out"
        )
    return peft.LoraConfig(
        r=spec.lora_r,
        lora_alpha=spec.lora_alpha,
        target_modules=wrapper.targets_of(model, spec.targets, linear, besides=named),
        target_parameters=named or None,
        use_rslora=spec.rslora,
        use_dora=spec.dora,
        lora_dropout=spec.lora_dropout,  # row_noise.py draws its mask: a random one would depend on the cluster
        bias="none",
        task_type="CAUSAL_LM",
    )


def in_train_mode(model: nn.Module, dropped: Sequence[str] = ()) -> nn.Module:
    """The model in train mode, with every trainable weight in fp32: an update may be smaller than bf16 can hold. And
    without dropout: its mask would depend on the cluster. `dropped`: what of it has been switched off before."""
    dropout.note(model, [*dropped, *dropout.switched_off_in(model)])
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return model.train()
