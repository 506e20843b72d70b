"""Small texts for a model from nothing: the standard library's own docstrings."""

import ast
import os
from pathlib import Path

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
