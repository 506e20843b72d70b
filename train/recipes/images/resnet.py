"""ResNet-18 and ResNet-50 with GroupNorm, from a list of their convolutions. Plain PyTorch.

BatchNorm looks across rows: with it the gradient would depend on how a step is cut, and so on the cluster.
"""

from __future__ import annotations

import math
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from train.plan.model.picture_facts import Block, Convolution, PictureFacts

MOST_GROUPS, LEAST_CHANNELS = 32, 4


def group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(math.gcd(MOST_GROUPS, channels // LEAST_CHANNELS), channels)


def convolution(one: Convolution) -> nn.Sequential:
    """A convolution with its norm."""
    layer = nn.Conv2d(one.inward, one.outward, one.kernel, one.stride, one.kernel // 2, bias=False)
    return nn.Sequential(layer, group_norm(one.outward))


class Residual(nn.Module):  # type: ignore[misc]
    def __init__(self, block: Block) -> None:
        super().__init__()
        self.main = nn.ModuleList([convolution(one) for one in block.main])
        self.shortcut = convolution(block.shortcut) if block.shortcut else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for part in self.main[:-1]:
            y = F.relu(part(y))
        return F.relu(self.main[-1](y) + self.shortcut(x))


class ResNet(nn.Module):  # type: ignore[misc]
    def __init__(self, facts: PictureFacts, config: Any) -> None:
        super().__init__()
        self.config = config
        """What is written beside the weights."""
        pool = nn.Identity() if facts.is_small else nn.MaxPool2d(3, 2, 1)
        self.stem = nn.Sequential(convolution(facts.stem), nn.ReLU(), pool)
        self.blocks = nn.Sequential(*(Residual(block) for block in facts.blocks()))
        self.classifier = nn.Linear(facts.features, facts.classes)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.classifier(self.blocks(self.stem(pictures)).mean(dim=(2, 3)))
