"""The forms in which a base is held while it is trained: each test of what a run computes takes both."""

from __future__ import annotations

from pathlib import Path

import torch
from bitsandbytes.nn import Linear4bit, Linear8bitLt
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from train.models.model_files import model_folder

FORMS = ("16bit", "4bit")
LINEARS = 28
"""Of `tiny`: seven in each of its four blocks; the last layer and the embedding are never quantised."""


def quantised_layers(model: torch.nn.Module) -> list[str]:
    return [type(module).__name__ for module in model.modules() if isinstance(module, Linear4bit | Linear8bitLt)]


def save_in_4bit(folder: Path, *, compute: torch.dtype = torch.bfloat16) -> Path:
    """`tiny` as the hub has models that are quantised already."""
    how = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=compute
    )
    source = Path(model_folder("tiny"))
    AutoModelForCausalLM.from_pretrained(source, quantization_config=how, dtype=torch.float32).save_pretrained(folder)
    for file in source.iterdir():
        if not (folder / file.name).exists():
            (folder / file.name).write_bytes(file.read_bytes())
    return folder
