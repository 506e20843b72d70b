"""A language model from nothing: all of its weights are trained, and all are exchanged (recipes/__init__.py says what
each part is).

rows     texts behind one another, cut into rows; a text that is longer than a row continues in the next one
start    the tokenizer, made of the part that is trained on
build    a Llama with first weights of its own
export   the model and its tokenizer, as transformers loads them
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from train.data.rows import PackedRows, open_rows, read_index
from train.errors import BadInput
from train.files import file_hash
from train.models.backends import LossModule, at_rest
from train.models.weights import Named, WeightGroup, shrunk_and_kept
from train.plan.model.catalogue import Facts
from train.plan.placement.decisions import Decisions
from train.plan.settings.read_settings import PretrainConfig
from train.recipes import model_card, prepared
from train.recipes.pretrain import model as new
from train.recipes.pretrain.rows import PROMPTS, TOKENIZER
from train.recipes.sft.recipe import full_rows

if TYPE_CHECKING:
    from train.engine.loop import Run

__all__ = [
    "build", "card", "export", "full_rows", "identity", "optimized", "rows", "samples", "shape", "start",
    "start_for_trial",
]  # fmt: skip

SAMPLE_TOKENS = 40
WARMTH = 0.8
"""Temperature of drawing: below 1 the likelier tokens come more often. The likeliest alone would repeat itself."""
NOT_SHRUNK = ("embed_tokens.weight", "lm_head.weight")


def rows(config: PretrainConfig, say: Callable[[str], None]) -> tuple[PackedRows, PackedRows]:
    folder = start(config, lambda _: None).parent
    return open_rows(folder), open_rows(folder, "eval")


def start(config: PretrainConfig, say: Callable[[str], None]) -> Path:
    """The tokenizer's folder, in that of the rows; both are made first where only texts are there."""
    folder = prepared(config, say)
    if not (folder / TOKENIZER).is_dir():
        raise BadInput(
            "these rows are of a base model's tokenizer: they have none of their own",
            f"folder: {folder}",
            "prepare the texts with: python -m train prepare --recipe pretrain --dataset FOLDER",
        )
    if (length := int(read_index(folder)["row_length"])) != config.max_seq_length:
        raise BadInput(
            f"the rows have {length} tokens, and max_seq_length is {config.max_seq_length}",
            f"folder: {folder}",
            f"set max_seq_length: {length}, or prepare the texts again",
        )
    return folder / TOKENIZER


def start_for_trial(config: PretrainConfig) -> None:
    """A speed can be measured before there are rows."""


def shape(config: PretrainConfig, start: Path | None) -> Facts:
    return config.facts(int(read_index(start.parent)["vocabulary"]) if start else 0)


def build(config: PretrainConfig, decisions: Decisions, start: Path | None, device: str, row_length: int) -> LossModule:
    end_id = int(read_index(start.parent)["end_id"]) if start else 0
    return new.build(shape(config, start), decisions, end_id=end_id, seed=config.seed, device=device)


def optimized(config: PretrainConfig, named: Named) -> list[WeightGroup]:
    """Weights of matrices are shrunk a little in each step; norms and embeddings are not."""
    shrunk, kept = shrunk_and_kept(named, config.weight_decay, but=NOT_SHRUNK)
    betas = (0.9, config.beta2)
    return [{**shrunk, "betas": betas, "muon": config.optimizer == "muon"}, {**kept, "betas": betas}]


def identity(config: PretrainConfig, start: Path) -> dict[str, str]:
    return {"tokenizer's hash": file_hash(start / "tokenizer.json")}


def samples(run: Run) -> list[dict[str, str]]:
    """How the model continues the first words of texts that are held out."""
    from tokenizers import Tokenizer

    rows = cast(PackedRows, run.rows)
    folder = rows.folder.parent
    prompts: list[list[int]] = json.loads((folder / PROMPTS).read_text())
    if not prompts:
        return []
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER / "tokenizer.json"))
    count = min(map(len, prompts))
    lines = continued(run, torch.tensor([prompt[:count] for prompt in prompts]))
    parts = [(line[:count], until_end(line[count:], rows.pad_id)) for line in lines]
    return [{"given": tokenizer.decode(given), "wrote": tokenizer.decode(wrote)} for given, wrote in parts]


def until_end(tokens: list[int], end_id: int) -> list[int]:
    return tokens[: tokens.index(end_id)] if end_id in tokens else tokens


def continued(run: Run, lines: torch.Tensor) -> list[list[int]]:
    """Drawn on the processor, by the seed and the step alone."""
    random = torch.Generator().manual_seed(run.config.seed + run.step)
    model: Any = run.module.model
    with at_rest(model), torch.no_grad(), run.module.autocast():
        for _ in range(SAMPLE_TOKENS):
            seen = lines[:, -run.rows.row_length :].to(run.device)
            scores = model(input_ids=seen, use_cache=False).logits[:, -1].float().cpu()
            drawn = torch.multinomial((scores / WARMTH).softmax(-1), 1, generator=random)
            lines = torch.cat([lines, drawn], dim=1)
    found: list[list[int]] = lines.tolist()
    return found


def export(run: Run, folder: Path) -> None:
    tokenizer = cast(PackedRows, run.rows).folder.parent / TOKENIZER
    for file in sorted(tokenizer.iterdir()):
        shutil.copy2(file, folder / file.name)


def card(run: Run) -> str:
    return model_card.new_card(run)
