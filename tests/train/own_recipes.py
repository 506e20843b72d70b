"""A small recipe of one's own, and others made of it by replacing some of its lines."""

SIMPLE = """
import torch
from torch import nn

settings = {"width": 4}

def rows(settings):
    x = torch.arange(60.0).reshape(20, 3).sin()
    return {"x": x, "y": x.sum(1)}

def model(settings):
    return nn.Sequential(nn.Linear(3, settings["width"]), nn.Tanh(), nn.Linear(settings["width"], 1))

def loss(model, batch):
    return (model(batch["x"]).squeeze(1) - batch["y"]) ** 2
"""


def written(tmp_path, *changes, text=SIMPLE):
    """A recipe with some of its lines replaced."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "mine.py").write_text(text)
    return tmp_path / "mine.py"
