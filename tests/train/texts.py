"""Small texts for a model from nothing: the standard library's own docstrings; and what plain PyTorch makes of them."""

import ast
import json
import os
from pathlib import Path

import torch

from tests.train import reference
from train.data.rows import open_rows
from train.plan.settings.read_settings import load_config
from train.recipes.pretrain import model as new
from train.recipes.pretrain.rows import prepare

SHAPE = {"hidden_size": 32, "layers": 2, "heads": 2, "vocab_size": 400, "max_seq_length": 48}
SETTINGS = {
    "recipe": "pretrain",
    **SHAPE,
    "rows_per_step": 8,
    "eval_fraction": 0.2,
    "max_steps": 24,
    "warmup_steps": 4,
    "learning_rate": 3e-3,
    "eval_every": 8,
    "save_every": 6,
    "proof_every": 6,
    "wire": "fp32",
}


def write(folder: Path, count: int = 14) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted(Path(os.__file__).parent.glob("*.py")):
        if len(list(folder.iterdir())) == count:
            break
        if text := ast.get_docstring(ast.parse(source.read_text())):
            suffix = ".md" if len(text) % 2 else ".txt"
            (folder / f"{source.stem}{suffix}").write_text(text + "\n")
    return folder


def rows(folder: Path) -> Path:
    config = load_config({**SETTINGS, "dataset": str(write(folder / "texts"))})
    return prepare(config, lambda _: None, out=str(folder / "rows"))


def truth_of(data: Path, settings: dict, optimizer) -> list[float]:
    """`optimizer`: of the matrices of blocks and of the other weights makes what steps at a rate."""
    config = load_config({**settings, "dataset": str(data)})
    index = json.loads((data / "index.json").read_text())
    model = new.empty(config.facts(index["vocabulary"]), index["end_id"]).float()
    new.first_weights(model, config.layers, config.seed)
    matrices = [p for name, p in model.named_parameters() if name.startswith("model.layers") and p.dim() == 2]
    others = [p for name, p in model.named_parameters() if not (name.startswith("model.layers") and p.dim() == 2)]
    step_at = optimizer(matrices, others)
    packed, found = open_rows(data), []
    stream = reference.order(packed, config.seed)
    for step in range(settings["max_steps"]):
        total, count = reference.summed_loss(model, packed, stream[step * 8 : step * 8 + 8])
        model.zero_grad()
        (total / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        step_at(3e-3 * reference.factor(step, 4, settings["max_steps"]))
        found.append((total / count).item())
    return found
