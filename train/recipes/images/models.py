"""Models that classify pictures: from nothing own ResNets and a small ViT in transformers' own class, beside those of
others (picture_bases.py).

Every model takes three colours; grey pictures have the same three times. First weights are drawn in fp32 on the
processor, by the seed, in the order of their names.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from train.errors import BadInput
from train.models.backends import Batch, LossModule, autocast
from train.models.weights import WEIGHTS
from train.plan.model.picture_bases import IMAGE_SIZE
from train.plan.model.picture_facts import COLOURS, MODELS, VIT_LAYERS, PictureFacts
from train.recipes.images import pretrained as picture_bases
from train.recipes.images.pretrained import HALF, StillBatchNorm
from train.recipes.images.resnet import ResNet

METRICS = ("top1", "top5")
SPREAD = 0.02
CONFIG = "config.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class ResNetConfig:
    model_type: str
    width: int
    image_size: int
    classes: int

    def save_pretrained(self, folder: Path) -> None:
        (folder / CONFIG).write_text(json.dumps(asdict(self), indent=2) + "\n")


def build(facts: PictureFacts, *, precision: str, seed: int, device: str) -> LossModule:
    model = empty(facts)
    first_weights(model, seed)
    return loss_module(model.to(device).train(), precision, device)


def loss_module(model: nn.Module, precision: str, device: str) -> LossModule:
    refuse_batch_norm(model)
    return LossModule(model, loss_sum, partial(autocast, precision, device), METRICS, measured)


def empty(facts: PictureFacts) -> Any:
    if facts.is_vit:
        return empty_vit(facts)
    config = ResNetConfig(
        model_type=facts.family, width=facts.width, image_size=facts.image_size, classes=facts.classes
    )
    return ResNet(facts, config)


def empty_vit(facts: PictureFacts) -> Any:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=facts.width,
        num_hidden_layers=VIT_LAYERS,
        num_attention_heads=facts.heads,
        intermediate_size=4 * facts.width,
        image_size=facts.image_size,
        patch_size=facts.patch,
        num_channels=COLOURS,
        num_labels=facts.classes,
        hidden_dropout_prob=0.0,  # a random mask would depend on the cluster
        attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
        dtype="float32",
    )
    config.architectures = ["ViTForImageClassification"]
    return ViTForImageClassification(config)


def saved_facts(folder: Path) -> PictureFacts:
    """The facts of a ResNet that a run has written."""
    config = json.loads((folder / CONFIG).read_text())
    return PictureFacts(
        family=config["model_type"], **{name: config[name] for name in ("width", "image_size", "classes")}
    )


def saved_size(folder: Path) -> int:
    """Edge of the pictures that it takes."""
    return int(json.loads((folder / CONFIG).read_text()).get("image_size", IMAGE_SIZE))


def load(folder: Path, base: str = "") -> nn.Module:
    """`base`: of a checkpoint, what was fine-tuned."""
    if json.loads((folder / CONFIG).read_text())["model_type"] not in MODELS:
        found: nn.Module = picture_bases.load(folder, base).eval()
        return found
    model = empty(saved_facts(folder))
    model.load_state_dict(load_file(folder / WEIGHTS))
    return model.eval()


def refuse_batch_norm(model: nn.Module) -> None:
    for name, layer in model.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and not isinstance(layer, StillBatchNorm):
            raise BadInput(
                f"the model has BatchNorm ({name}): it looks across rows, so the gradient would depend on how a step "
                "is cut, and the curve on the cluster",
                fix="use GroupNorm or LayerNorm, such as model=resnet18",
            )


def first_weights(model: nn.Module, seed: int) -> None:
    """Convolutions by the number of their outputs (He's rule), matrices narrow; the last norm of a ResNet's block is
    zero, so that a block begins as its shortcut."""
    random = torch.Generator().manual_seed(seed)
    resnet = isinstance(model, ResNet)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            if name.endswith("bias"):
                weight.zero_()
            elif weight.dim() == 1:
                weight.fill_(1.0)
            elif weight.dim() == 4 and resnet:
                outputs = weight.shape[0] * weight.shape[2] * weight.shape[3]
                weight.normal_(0.0, (2 / outputs) ** 0.5, generator=random)
            else:
                weight.normal_(0.0, SPREAD, generator=random)
        for block in model.blocks if resnet else ():
            block.main[-1][1].weight.zero_()


def scores(model: nn.Module, pictures: Tensor) -> Tensor:
    """The score of each class, from pictures as bytes."""
    mean, spread = (torch.tensor(numbers, device=pictures.device)[:, None, None] for numbers in usual_pixels(model))
    pixels = ((pictures.float() / 255 - mean) / spread).expand(-1, COLOURS, -1, -1)
    found = model(pixels)
    return (found if isinstance(found, Tensor) else found.logits).float()


def usual_pixels(model: Any) -> tuple[list[float], list[float]]:
    """Mean and spread of each colour, as the model was trained on them."""
    return getattr(model.config, "image_mean", HALF), getattr(model.config, "image_std", HALF)


def pixel_words(model: Any) -> str:
    """The formula from byte to pixel, for whoever feeds the model elsewhere."""
    mean, spread = usual_pixels(model)
    if (mean, spread) == (HALF, HALF):
        return "b / 127.5 - 1"
    return f"(b / 255 - mean) / spread, by colour: mean {mean}, spread {spread}"


def loss_sum(model: nn.Module, batch: Batch) -> Tensor:
    return F.cross_entropy(scores(model, batch["pictures"]), batch["labels"], reduction="sum")


def measured(model: nn.Module, batch: Batch) -> Tensor:
    """The summed loss; how many pictures have their class first, and among the first five."""
    found, labels = scores(model, batch["pictures"]), batch["labels"]
    loss = F.cross_entropy(found, labels, reduction="sum")
    best = found.topk(min(5, found.shape[1]), dim=1).indices == labels[:, None]
    return torch.stack([loss.double(), best[:, 0].sum().double(), best.sum().double()])
