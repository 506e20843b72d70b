"""The shape of a picture model: what its memory and its traffic are computed from, and what it is built by. Pure.

A convolution leaves two of its results for the backward pass: its own, and what becomes of it behind norm and ReLU.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from train.errors import BadInput

MODELS = ("resnet18", "resnet50", "vit-tiny")
BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}
WIDTHS = {"resnet18": 64, "resnet50": 64, "vit-tiny": 192}
COLOURS = 3
SMALL = 64
"""Pictures below this edge keep it through the first layer; larger ones have a quarter of it behind the first two."""
VIT_LAYERS, VIT_HEAD_WIDTH = 12, 64
PATCHES = (16, 14, 8, 7, 4)
"""Edges of a patch; the largest is taken by which a picture still has LEAST_PATCHES each way."""
LEAST_PATCHES = 7


@dataclass(frozen=True, slots=True)
class Convolution:
    inward: int
    outward: int
    kernel: int
    stride: int = 1


@dataclass(frozen=True, slots=True)
class Block:
    main: tuple[Convolution, ...]
    shortcut: Convolution | None
    """None: its input as it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PictureFacts:
    family: str
    width: int
    image_size: int
    classes: int
    on_disk: str = ""

    @property
    def is_vit(self) -> bool:
        return self.family == "vit-tiny"

    @property
    def patch(self) -> int:
        return patch_of(self.image_size)

    @property
    def heads(self) -> int:
        return max(1, self.width // VIT_HEAD_WIDTH)

    @property
    def is_small(self) -> bool:
        return self.image_size < SMALL

    @property
    def stem(self) -> Convolution:
        return Convolution(COLOURS, self.width, 3) if self.is_small else Convolution(COLOURS, self.width, 7, 2)

    def blocks(self) -> list[Block]:
        is_basic, depths = self.family == "resnet18", BLOCKS[self.family]
        widths = [(self.width if is_basic else 4 * self.width) << stage for stage in range(len(depths))]
        return resnet_blocks(self.width, widths, depths, is_basic=is_basic)

    @property
    def features(self) -> int:
        """Numbers by which a picture is classified."""
        return self.width if self.is_vit else self.blocks()[-1].main[-1].outward

    @property
    def parameters(self) -> int:
        return (self._vit_parameters() if self.is_vit else resnet_weights(self.stem, self.blocks())) + (
            self.features * self.classes + self.classes
        )

    def _vit_parameters(self) -> int:
        w, patches = self.width, (self.image_size // self.patch) ** 2
        block = 4 * (w * w + w) + 8 * w * w + 5 * w + 4 * w
        return COLOURS * self.patch**2 * w + w + w + (patches + 1) * w + VIT_LAYERS * block + 2 * w

    @property
    def kept(self) -> int:
        """Numbers that one picture leaves for the backward pass."""
        if self.is_vit:  # a block's two norms, q, k, v, attention's result, two sums, and the MLP's two
            return ((self.image_size // self.patch) ** 2 + 1) * self.width * 16 * VIT_LAYERS
        return resnet_keeps(self.stem, self.blocks(), self.image_size, pool=not self.is_small)


def resnet_blocks(
    inward: int, widths: Sequence[int], depths: Sequence[int], *, is_basic: bool, halves_first: bool = False
) -> list[Block]:
    """`halves_first`: the first stage halves the picture, too."""
    blocks = []
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for number in range(depth):
            stride = 2 if not number and (stage or halves_first) else 1
            main = main_path(inward, width if is_basic else width // 4, width, stride)
            shortcut = Convolution(inward, width, 1, stride) if (inward, stride) != (width, 1) else None
            blocks.append(Block(main, shortcut))
            inward = width
    return blocks


def resnet_weights(stem: Convolution, blocks: Iterable[Block]) -> int:
    every = [stem, *(part for block in blocks for part in (*block.main, block.shortcut) if part)]
    return sum(one.inward * one.outward * one.kernel**2 + 2 * one.outward for one in every)


def resnet_keeps(stem: Convolution, blocks: Iterable[Block], image_size: int, *, pool: bool) -> int:
    edge = -(-image_size // stem.stride)
    numbers = COLOURS * image_size**2 + 2 * stem.outward * edge**2
    if pool:  # its result, and where each came from, in 8 bytes
        edge = -(-edge // 2)
        numbers += 3 * stem.outward * edge**2
    for block in blocks:
        for part in block.main:
            edge = -(-edge // part.stride)
            numbers += 2 * part.outward * edge**2
        numbers += block.main[-1].outward * edge**2 if block.shortcut else 0
    return numbers


def main_path(inward: int, middle: int, outward: int, stride: int) -> tuple[Convolution, ...]:
    if middle == outward:
        return Convolution(inward, outward, 3, stride), Convolution(outward, outward, 3)
    return Convolution(inward, middle, 1), Convolution(middle, middle, 3, stride), Convolution(middle, outward, 1)


def patch_of(image_size: int) -> int:
    fitting = [patch for patch in PATCHES if image_size % patch == 0]
    return next((patch for patch in fitting if image_size // patch >= LEAST_PATCHES), 0)


def checked(family: str, width: int, image_size: int) -> int:
    """The width, where 0 is the model's usual one; BadInput where the numbers do not fit together."""
    if family not in MODELS:
        raise BadInput(
            f"model: '{family}' is none of {'|'.join(MODELS)}",
            "these begin from nothing; a trained one is a hub id (owner/name) or a folder (./name)",
        )
    if image_size < 8:
        raise BadInput(f"image_size: {image_size} is below 8", fix="128 is usual for photos")
    if family == "vit-tiny" and not patch_of(image_size):
        near = sorted((size for size in range(28, 1025) if patch_of(size)), key=lambda size: abs(size - image_size))
        raise BadInput(
            f"image_size: {image_size} cannot be cut into patches of {', '.join(map(str, PATCHES))}",
            fix=f"nearest that can: image_size={near[0]} or image_size={near[1]}",
        )
    chosen = width or WIDTHS[family]
    step = 4 if family != "vit-tiny" else VIT_HEAD_WIDTH if chosen >= VIT_HEAD_WIDTH else 8
    if chosen < step or chosen % step:
        raise BadInput(
            f"width: {chosen} is no multiple of {step}", fix=f"for example width={max(step, chosen // step * step)}"
        )
    return chosen
