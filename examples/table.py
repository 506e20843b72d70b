"""A small network that predicts a number of a table from the others: a recipe of one's own, from its rows to its loss.

./motley launch --recipe examples/table.py --dataset examples/energy.csv
python -m train run --recipe examples/table.py --dataset examples/energy.csv
"""

import csv

import torch
from torch import nn

settings = {"target": "kwh", "width": 64, "max_steps": 400, "learning_rate": 0.01}


def rows(settings):
    """Each column in units of its own spread, so that none drowns the others."""
    with open(settings["dataset"], newline="") as file:
        records = list(csv.DictReader(file))
    inputs = [name for name in records[0] if name != settings["target"]]
    x = torch.tensor([[float(record[name]) for name in inputs] for record in records])
    y = torch.tensor([float(record[settings["target"]]) for record in records])
    return {"x": (x - x.mean(0)) / x.std(0), "y": (y - y.mean()) / y.std()}


def model(settings):
    (columns,), width = settings["shapes"]["x"], settings["width"]
    return nn.Sequential(nn.Linear(columns, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def loss(model, batch):
    """One number for each row: here the square of its error."""
    return (model(batch["x"]).squeeze(1) - batch["y"]) ** 2


def metrics(model, batch):
    return {"error": (model(batch["x"]).squeeze(1) - batch["y"]).abs()}
