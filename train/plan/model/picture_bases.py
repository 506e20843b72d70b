"""The shape of a picture model that others have trained, read from its config.json. Pure.

Families whose norms do not look across rows, or whose BatchNorm can stay as it is while they are fine-tuned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from train.errors import BadInput
from train.plan.model.picture_facts import (
    COLOURS,
    Convolution,
    PictureFacts,
    resnet_blocks,
    resnet_keeps,
    resnet_weights,
)  # fmt: skip

IMAGE_SIZE = 224
"""What nearly all of them were trained on."""
CUT = ("vit",)
"""Cut a picture into patches, each with a place of its own: another size has other places."""
KERNEL, GROWTH = 7, 4
"""The kernel of a ConvNeXt's block, and how many times as wide its MLP is."""
Config = Mapping[str, Any]
Counted = tuple[int, int]
"""Weights without the classifier's; numbers that one picture leaves for the backward pass."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedFacts(PictureFacts):
    """`width`: numbers by which a picture is classified."""

    weights: int
    left: int

    @property
    def parameters(self) -> int:
        return self.weights + self.width * self.classes + self.classes

    @property
    def kept(self) -> int:
        return self.left


def is_base(name: str) -> bool:
    """Whether that is a hub id or a folder; the models from nothing have plain names."""
    return "/" in name


def facts_of(config: Config, where: str, *, image_size: int, classes: int) -> TrainedFacts:
    family = str(config.get("model_type", "?"))
    if family not in FAMILIES:
        raise BadInput(
            f"a '{family}' model is not known as one of pictures that can be fine-tuned",
            f"model: {where}",
            f"choose one of these families: {', '.join(FAMILIES)}",
        )
    if family in CUT and image_size != (own := config.get("image_size", IMAGE_SIZE)):
        raise BadInput(
            f"image_size: this model takes pictures of {own} × {own}, not of {image_size} × {image_size}",
            f"model: {where}",
            f"use image_size={own}",
        )
    try:
        width, (weights, left) = width_of(config), FAMILIES[family](config, image_size)
    except (TypeError, ValueError, IndexError, ZeroDivisionError) as error:  # whatever stands there is read as a size
        what = f"config.json is broken: its sizes make no {family} model ({error})"
        raise BadInput(what, f"model: {where}", "copy or fetch the model again, or choose another") from None
    return TrainedFacts(family=family, width=width, image_size=image_size, classes=classes, weights=weights, left=left)


def width_of(config: Config) -> int:
    if config["model_type"] in CUT:
        return int(config.get("hidden_size", 768))
    usual = (256, 512, 1024, 2048) if config["model_type"] == "resnet" else (96, 192, 384, 768)
    return int(config.get("hidden_sizes", usual)[-1])


def of_transformer(config: Config, image_size: int) -> Counted:
    width, layers = width_of(config), config.get("num_hidden_layers", 12)
    wide, patch = config.get("intermediate_size", 3072), config.get("patch_size", 16)
    places = (image_size // patch) ** 2 + 1
    biases = 3 * width if config.get("qkv_bias", True) else 0
    block = 4 * width * width + width + biases + 2 * width * wide + wide + width + 4 * width
    weights = COLOURS * patch**2 * width + width + width + places * width + layers * block + 2 * width
    # two norms, q, k, v, attention's result, two sums; the MLP's two
    return weights, places * layers * (8 * width + 2 * wide)


def of_convnext(config: Config, image_size: int) -> Counted:
    widths, depths = config.get("hidden_sizes", (96, 192, 384, 768)), config.get("depths", (3, 3, 9, 3))
    patch = config.get("patch_size", 4)
    weights, edge = COLOURS * patch**2 * widths[0] + 3 * widths[0], image_size // patch
    left = COLOURS * image_size**2 + 2 * widths[0] * edge**2
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        if stage:
            before = widths[stage - 1]
            weights += 2 * before + 4 * before * width + width
            left += 2 * before * edge**2
            edge //= 2
        scale = 2 * GROWTH * width if config["model_type"] == "convnextv2" else width
        weights += depth * (KERNEL**2 * width + 2 * GROWTH * width**2 + (4 + GROWTH) * width + scale)
        left += depth * edge**2 * (KEPT_V2 if config["model_type"] == "convnextv2" else KEPT) * width
    return weights + 2 * widths[-1], left


KEPT, KEPT_V2 = 12, 24
"""Numbers kept per place of a block, in widths: the input, the norm's two, the MLP's two of four widths, its result."""


def of_resnet(config: Config, image_size: int) -> Counted:
    first = config.get("embedding_size", 64)
    widths, depths = config.get("hidden_sizes", (256, 512, 1024, 2048)), config.get("depths", (3, 4, 6, 3))
    is_basic, halves_first = config.get("layer_type") == "basic", config.get("downsample_in_first_stage", False)
    blocks = resnet_blocks(first, widths, depths, is_basic=is_basic, halves_first=halves_first)
    stem = Convolution(COLOURS, first, 7, 2)
    return resnet_weights(stem, blocks), resnet_keeps(stem, blocks, image_size, pool=True)


FAMILIES: dict[str, Callable[[Config, int], Counted]] = {
    "vit": of_transformer,
    "convnext": of_convnext,
    "convnextv2": of_convnext,
    "resnet": of_resnet,
}
