"""Small pictures of two colours and three patterns, in a folder for each class; and what a model keeps of them."""

import contextlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image

CLASSES = ("bars", "dots", "stripes")
SETTINGS = {
    "recipe": "images",
    "width": 8,
    "image_size": 16,
    "rows_per_step": 8,
    "eval_fraction": 0.2,
    "max_steps": 24,
    "warmup_steps": 4,
    "eval_every": 8,
    "save_every": 6,
    "proof_every": 6,
    "wire": "fp32",
}


def write(folder: Path, count: int = 20, edge: int = 24, suffix: str = "png", seed: int = 1) -> Path:
    random = np.random.default_rng(seed)
    for kind in CLASSES:
        (folder / kind).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(picture(random, kind, edge)).save(folder / kind / f"{number}.{suffix}")
    return folder


def picture(random, kind: str, edge: int) -> np.ndarray:
    down, right = np.indices((edge, edge)) + random.integers(0, 4, 2)[:, None, None]
    marked = {"bars": right % 6 < 2, "stripes": down % 6 < 2, "dots": (down % 6 < 2) & (right % 6 < 2)}[kind]
    pixels = random.integers(0, 120, (edge, edge, 3))
    pixels[marked] += random.integers(60, 130, 3)
    return pixels.astype(np.uint8)


@contextlib.contextmanager
def kept_beside(weights):
    """Of what is computed within, what is kept for the way back: bytes by place, without these weights."""
    kept, known = {}, {tensor.data_ptr() for tensor in weights}

    def keep(tensor):
        if tensor.data_ptr() not in known:
            kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield kept
