"""The settings of picture classification (recipe=images), beside those that every run has.

All of them but the length are filled in when they are read, as those of a language model from nothing are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from train.errors import BadInput
from train.plan.model import picture_bases
from train.plan.model.catalogue import Dataset, Model, catalogue, config_of, resolve_model
from train.plan.model.picture_facts import MODELS, PictureFacts, checked
from train.plan.settings import picture_sets
from train.plan.settings.every_run import RunConfig, at_least, flags, option
from train.plan.values import Settings
from train.runlog import paths

IMAGE_SIZE = 128
EPOCHS, TUNING_EPOCHS = 10.0, 3.0
CLASSES = 10
"""How many classes are assumed where only a speed is measured, and nobody knows them."""
RATES = {"sgd": (0.4, 128), "adamw": (1e-3, 256)}
"""A peak learning rate, and the rows of a step that it belongs to. SGD's was tried on Fashion-MNIST with a ResNet-18 of
width 8, 300 steps of 64: held-out loss 0.76 at 0.2, 1.05 at 0.05. AdamW's is a usual one of small transformers."""
TUNING_RATES = {"sgd": (0.01, 128), "adamw": (1e-4, 256)}
"""The usual peak learning rates for a model that is trained already, and the rows of a step that each belongs to."""
DECAY = {"sgd": 5e-4, "adamw": 0.05}


@dataclass(frozen=True, kw_only=True)
class ImagesConfig(RunConfig):
    PREPARES: ClassVar[str] = "train.recipes.images.prepare"
    RESULT: ClassVar[str] = paths.MODEL
    REQUIRED: ClassVar[frozenset[str]] = frozenset({"dataset"})
    COUNTED: ClassVar[tuple[str, ...]] = ("recipe", "model", "width", "image_size")
    TOGETHER: ClassVar[frozenset[str]] = frozenset({"model", "width", "image_size", "max_seq_length"})
    ROW_UNIT: ClassVar[str] = "lines"

    recipe: str = option("images", "math", "sft: fine-tune a model; pretrain: a new one; images: pictures", ("images",))
    dataset: str = option("fashion-mnist", "node", "prepared folder, or anything that `prepare` takes")
    model: str = option("resnet18", "node", f"{'|'.join(MODELS)}: from nothing; a hub id or folder: fine-tuned")
    width: int = option(0, "math", "channels of the first stage, or width of the transformer; 0: as the model has it")
    image_size: int = option(
        0, "math", f"pixels each way that a picture becomes; 0: the data set's own, or {IMAGE_SIZE}; 224 to fine-tune"
    )
    augment: bool = option(True, "math", "flip and shift pictures while training; by seed, epoch and row")

    max_seq_length: int = option(0, "agree", "for pictures this is image_size")
    rows_per_step: int = option(64, "math", "pictures of one optimizer step, over all nodes together")
    epochs: float | None = option(
        None,
        "math",
        f"passes over the pictures; neither: {EPOCHS:g} ({TUNING_EPOCHS:g} to fine-tune), but 50 steps at least",
    )
    gradient_checkpointing: str = option("false", "agree", "these models have none", ("auto", "false"))
    optimizer: str = option(
        "auto",
        "math",
        "sgd|adamw|adamw8bit|auto: sgd for a new resnet, else adamw",
        ("auto", "sgd", "adamw", "adamw8bit"),
    )
    learning_rate: float = option(0.0, "math", "peak learning rate; 0: by the rows of a step")
    warmup_steps: int = option(100, "math", "steps until the peak learning rate")
    grad_clip: float = option(5.0, "math", "largest gradient norm; 0 switches clipping off")
    weight_decay: float = option(-1.0, "math", "of matrices and convolutions; -1: by the optimizer")
    eval_every: int = option(100, "agree", "steps between evaluations, each with its accuracy")
    eval_rows: int = option(1000, "agree", "held-out pictures that an evaluation looks at, at most")

    def __post_init__(self) -> None:
        for name in ("width", "image_size", "learning_rate"):
            at_least(self, name, 0)
        entry = catalogue()["datasets"].get(self.dataset, {})
        usual_size = picture_bases.IMAGE_SIZE if self.is_base else entry.get("image_size", IMAGE_SIZE)
        size = self.image_size or usual_size
        if self.max_seq_length not in (0, size):
            raise BadInput("max_seq_length: pictures have none", fix=f"leave it out: image_size={size} is their edge")
        usual = "adamw" if self.is_base or self.model.startswith("vit") else "sgd"
        filled: Settings = {"image_size": size, "max_seq_length": size}
        if self.gradient_checkpointing == "auto":
            filled["gradient_checkpointing"] = "false"
        if self.is_base and self.width:
            raise BadInput("width: a trained model has its own", f"model: {self.model}", "leave width out")
        filled |= {"width": 0 if self.is_base else checked(self.model, self.width, size)}
        filled |= {"optimizer": usual if self.optimizer == "auto" else self.optimizer}
        for name, value in filled.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "learning_rate", self.learning_rate or self.rate_by_rows()[0])
        if self.weight_decay == -1:
            object.__setattr__(self, "weight_decay", DECAY[self._rule])
        super().__post_init__()

    @property
    def is_base(self) -> bool:
        """Whether a model that is trained already is fine-tuned."""
        return picture_bases.is_base(self.model)

    @property
    def counted(self) -> Settings:
        name = Path(self.model).name if self.is_base else self.model
        return super().counted | {"model": name}

    @property
    def _rule(self) -> str:
        return "sgd" if self.optimizer == "sgd" else "adamw"

    def rate_by_rows(self) -> tuple[float, str]:
        """The peak rate, and why: the noise of a gradient falls with the rows that it is made of."""
        rate, rows = (TUNING_RATES if self.is_base else RATES)[self._rule]
        times = max(1, self.rows_per_step) / rows
        usual = f"{rate:g} at {rows} rows a step"
        if self._rule == "sgd":
            return float(f"{rate * times:.3g}"), f"{usual}, in proportion to the rows (linear rule, SGD)"
        return float(f"{rate * math.sqrt(times):.3g}"), f"{usual}, with the root of the rows (AdamW)"

    @property
    def rate_reason(self) -> str:
        rate, why = self.rate_by_rows()
        steps = self.warm_up(self.max_steps) if self.max_steps else self.warmup_steps
        warm = f"; {steps} steps of warm-up" if steps else ""
        if not self.max_steps and self.warm_up(0) != steps:
            warm += ", or a tenth of a shorter run"
        return f"learning rate {self.learning_rate:g}: {why if self.learning_rate == rate else 'as set'}{warm}"

    @property
    def usual_epochs(self) -> float:
        return TUNING_EPOCHS if self.is_base else EPOCHS

    def facts(self, classes: int = 0) -> PictureFacts:
        """The shape of the model. `classes`: of the rows that were made."""
        if self.is_base:
            config, where = config_of(self.start_model())
            return self.facts_of(config, where, classes)
        return PictureFacts(
            family=self.model, width=self.width, image_size=self.image_size, classes=classes or self._classes()
        )

    def facts_of(self, config: Mapping[str, Any], where: str, classes: int = 0) -> PictureFacts:
        size, count = self.image_size, classes or self._classes()
        return picture_bases.facts_of(config, where, image_size=size, classes=count)

    def _classes(self) -> int:
        """How many classes the data set has, where it is here; else CLASSES."""
        try:
            return len(picture_sets.classes_of(self.data()))
        except BadInput:
            return CLASSES

    @property
    def subject(self) -> str:
        what = Path(self.model).name if self.is_base else f"a new {self.model}"
        return f"{what} · pictures of {self.image_size} × {self.image_size},"

    @property
    def about(self) -> str:
        return "all" if self.is_base else "from nothing, all"

    @property
    def step_words(self) -> tuple[int, str]:
        return self.rows_per_step, "pictures"

    @property
    def row_words(self) -> str:
        return f"{self.rows_per_step} pictures of {self.image_size} × {self.image_size}"

    def start_model(self, home: Path | None = None) -> Model:
        if self.is_base:
            return resolve_model(self.model, home)
        facts = self.facts()
        words = f"{facts.classes} classes, pictures of {self.image_size} × {self.image_size}"
        reason = f"a new {self.model} of {facts.parameters / 1e6:.1f} M weights: {words}"
        return Model(name=self.model, source="new", reason=reason, facts=facts)

    def data(self) -> Dataset:
        return picture_sets.resolve(self.dataset)

    def prepare_words(self, model_folder: str, file: str = "") -> list[str]:
        return flags(self, "recipe", "image_size", "eval_fraction", "max_bad")
