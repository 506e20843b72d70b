"""Small picture models of the families that can be fine-tuned, as others would have trained them: random weights, for
seven classes, with dropout in their settings and statistics in their BatchNorm."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForImageClassification

VIT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "image_size": 16,
    "patch_size": 4, "hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5,
}  # fmt: skip
CONVNEXT = {"hidden_sizes": [8, 16], "depths": [1, 2], "num_stages": 2, "drop_path_rate": 0.5, "image_size": 16}
RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2]}
SHAPES = {
    "vit": VIT,
    "convnext": CONVNEXT,
    "convnextv2": CONVNEXT,
    "resnet": RESNET | {"layer_type": "basic"},
    "bottleneck": RESNET | {"hidden_sizes": [16, 32], "layer_type": "bottleneck"},
}
MEAN, SPREAD = [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]


def config_of(family: str, **more: object):
    kind = "resnet" if family == "bottleneck" else family
    return AutoConfig.for_model(kind, **(SHAPES[family] | more), num_labels=7)


def make(family: str, folder: Path, **more: object) -> Path:
    torch.manual_seed(5)
    model = AutoModelForImageClassification.from_config(config_of(family, **more))
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.normal_()
                layer.running_var.uniform_(0.5, 2.0)
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": MEAN, "image_std": SPREAD}))
    return folder
