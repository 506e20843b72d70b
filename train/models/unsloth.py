"""unsloth: faster kernels and less memory, where a GPU is present. An optional dependency: nothing of it is copied.

tests/unsloth shows it without a GPU: its kernels in Triton's interpreter, and unsloth's own CPU backend
(UNSLOTH_FORCE_CPU=1). What it asks of its host, and why:
    RANK, LOCAL_RANK, WORLD_SIZE before the import    else a one-GPU node is patched to non-distributed permanently
    import before transformers and peft               it patches them
    private compile folders, one a process            they are no shared disk
    the model before the process group                afterwards its compile cache turns collective
    train mode after loading                          else gradient checkpointing is silently off
"""

# ruff: noqa: E402 -- the environment must be ready before unsloth is imported

from __future__ import annotations

import os
from typing import Any

from torch import Tensor, nn

from train.cache import cache_dir
from train.errors import BadInput, first_line
from train.models import unsloth_facts as facts
from train.models.backends import ModelSpec


def _prepare_environment() -> None:
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}.items():
        os.environ.setdefault(name, value)
    for name in ("UNSLOTH_COMPILE_LOCATION", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        of_node = os.environ.get(name) or str(cache_dir() / "compiled" / name.lower())
        os.environ[name] = f"{of_node}/local-rank-{os.environ['LOCAL_RANK']}"
    os.environ["UNSLOTH_DISABLE_STATISTICS"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("UNSLOTH_CE_LOSS_TARGET_GB", "0.5")  # or its loss takes what is free at the first micro-batch


_prepare_environment()
try:
    facts.require_version()
    import unsloth
except (ImportError, NotImplementedError) as error:
    raise BadInput(
        f"unsloth does not start here: {first_line(error)}",
        fix="use backend: hf, or install requirements/unsloth.txt on a machine with a GPU",
    ) from error

import torch

from train.models import hf


def build(spec: ModelSpec) -> nn.Module:
    model = load(spec)
    facts.require(model, spec)
    return model


def load(spec: ModelSpec) -> nn.Module:
    hf.require_positions(hf.config_of(spec.folder), spec)
    model, _ = unsloth.FastLanguageModel.from_pretrained(
        spec.folder,
        max_seq_length=spec.max_seq_length,
        dtype=hf.DTYPES[spec.precision],
        load_in_4bit=spec.load_in == "4bit",
        load_in_8bit=spec.load_in == "8bit",
        full_finetuning=spec.method == "full",
        trust_remote_code=False,
        **({} if spec.device == "cpu" else {"device_map": {"": spec.device}}),
    )
    if spec.adapter is not None:
        import peft

        model = peft.PeftModel.from_pretrained(model, str(spec.adapter), is_trainable=True)
    elif spec.method == "lora":
        hf.require_targets(model, spec)
        model = _with_adapter(model, spec)
    model.row_length = spec.max_seq_length
    return hf.in_train_mode(model)


def loss_sum(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """unsloth keeps packed samples apart only within a single row: the whole micro-batch becomes one. Its fused loss
    divides its sum by num_items_in_batch: 1 leaves the sum. A row that is longer than max_seq_length and holds one
    sample would have its tokens cut, and not its labels."""
    longest = batch["input_ids"].shape[1]
    if longest > model.row_length:
        raise BadInput(
            f"a row has {longest} tokens, and unsloth was loaded for {model.row_length} at most",
            fix="prepare the data set again",
        )
    one_row = {name: values.reshape(1, -1) for name, values in batch.items()}
    one = torch.ones((), device=batch["labels"].device)
    loss: Tensor = model(**one_row, use_cache=False, num_items_in_batch=one).loss
    return loss.float()


def _with_adapter(model: Any, spec: ModelSpec) -> Any:
    checkpointing: Any = {"true": True, "false": False}.get(spec.gradient_checkpointing, "unsloth")
    return unsloth.FastLanguageModel.get_peft_model(
        model,
        r=spec.lora_r,
        lora_alpha=spec.lora_alpha,
        lora_dropout=0,
        bias="none",
        target_modules=spec.targets,
        use_rslora=spec.rslora,
        use_gradient_checkpointing=checkpointing,
        random_state=spec.seed,
        max_seq_length=spec.max_seq_length,
    )
