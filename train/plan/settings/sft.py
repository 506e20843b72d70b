"""The settings of fine-tuning (recipe=sft), beside those that every run has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from train.errors import BadInput
from train.plan.model import data_sets
from train.plan.model.catalogue import Dataset, Model, resolve_model
from train.plan.model.verdict import Verdict
from train.plan.settings import chat_template, lora_relatives
from train.plan.settings.every_run import DATA_FORMATS, Holding, RunConfig, at_least, flags, option
from train.plan.settings.pipes import parse_pipes
from train.plan.values import Settings
from train.runlog import paths

SHORTEST_PROMPT = 8
RATES = {"lora": 2e-4, "full": 2e-5}
"""Peak learning rates. All weights of a model move together: at an adapter's rate it forgets what it knew."""


@dataclass(frozen=True, kw_only=True)
class SftConfig(RunConfig):
    PREPARES: ClassVar[str] = "train.data.prepare"
    RESULT: ClassVar[str] = paths.ADAPTER
    REQUIRED: ClassVar[frozenset[str]] = frozenset({"model", "dataset"})
    COUNTED: ClassVar[tuple[str, ...]] = (
        *("model", "method", "lora_r", "lora_targets", "load_in", "backend", "weights"),
        *lora_relatives.NAMES,
    )

    model: str = option("tiny", "node", "catalogue name, hub id or local folder of the base model")
    train_on: str = option(
        "answers",
        "agree",
        "answers|last|all, where the dataset is still to be prepared",
        ("answers", "last", "all"),
    )
    format: str = option(
        "auto", "agree", "what a record of the data is, where it is still to be prepared", ("auto", *DATA_FORMATS)
    )
    chat_template: str = option("", "node", "a file with a chat template, in place of the model's own")
    system: str = option("", "agree", "a system message before each conversation that has none")
    pack: bool = option(True, "agree", "several samples in a row, where the dataset is still to be prepared")

    learning_rate: float = option(0.0, "math", "peak learning rate; 0: 2e-4, or 2e-5 where method=full")
    method: str = option("lora", "math", "lora, or full fine-tuning (small models)", ("lora", "full"))
    lora_r: int = option(16, "math", "rank of the adapter")
    lora_alpha: int | float = option(16, "math", "scale of the adapter (alpha / r)")
    lora_targets: str = option("all-linear", "math", "all-linear, or names with commas: q_proj,v_proj")
    rslora: bool = option(False, "math", "scale by alpha / sqrt(r) instead")
    adapter: str = option("", "node", "a trained adapter to begin with: a run, a folder or a hub id")
    adapter_hash: str = option("", "math", "what that adapter is, as a SHA-256; found automatically")
    dora: bool = option(False, "math", "train each layer's strength and direction apart (DoRA)")
    lora_init: str = option(
        "default", "math", "first weights: default, or parts of the base: pissa|olora", ("default", "pissa", "olora")
    )
    lora_dropout: float = option(0.0, "math", "share of what goes into the adapter that is left out, by row and layer")
    loraplus_lr_ratio: float = option(1.0, "math", "how many times faster the second matrix learns (LoRA+); usual: 16")
    neftune_alpha: float = option(0.0, "math", "noise on the embeddings, by row (NEFTune); usual: 5")
    load_in: str = option(
        "auto", "math", "how the frozen base is held: 4bit|8bit|16bit|auto", ("auto", "16bit", "8bit", "4bit")
    )
    backend: str = option("auto", "agree", "unsloth (GPU) or hf (transformers + peft)", ("auto", "hf", "unsloth"))
    weights: str = option(
        "auto", "node", "where the frozen base is: gpu|stream (layer by layer)|auto", ("auto", "gpu", "stream")
    )

    pipes: str = option("auto", "agree", "off, or which nodes hold the base together: a+b,c; auto: as the plan decides")

    def __post_init__(self) -> None:
        object.__setattr__(self, "learning_rate", self.learning_rate or RATES.get(self.method, 0.0))
        targets = ",".join(name.strip() for name in self.lora_targets.split(","))
        object.__setattr__(self, "lora_targets", targets)
        super().__post_init__()
        if self.chat_template:
            object.__setattr__(self, "chat_template", str(Path(self.chat_template).expanduser().resolve()))
            chat_template.read(self.chat_template)
        chat_template.require_system(self.system)
        if self.system and self.format == "text":
            raise BadInput("system: format=text has no conversations", fix="leave one of the two out")
        lora_relatives.settle(self)
        at_least(self, "lora_r", 1)
        if self.lora_alpha <= 0:
            raise BadInput(f"lora_alpha: {self.lora_alpha} is not above 0")
        if self.weights == "stream":
            _check_stream(self)
        if parse_pipes(self.pipes):
            _check_pipes(self)

    @property
    def counted(self) -> Settings:
        folder = Path(self.model).expanduser()
        files = folder.glob("*.safetensors")
        return super().counted | {
            "model": folder.name if folder.is_dir() else self.start_model().name,
            "weights": sum(file.stat().st_size for file in files) if folder.is_dir() else None,
        }

    @property
    def holding(self) -> Holding:
        return Holding(
            backend=self.backend,
            load_in=self.load_in,
            full=self.method == "full",
            lora_r=self.lora_r,
            lora_targets=self.lora_targets,
            weights=self.weights,
            pipes=self.pipes,
            dora=self.dora,
            lora_init=self.lora_init,
            lora_dropout=self.lora_dropout,
            neftune_alpha=self.neftune_alpha,
        )

    @property
    def scores(self) -> bool:
        """Whether a reward model is trained, which gives an answer a score and writes none."""
        return False

    @property
    def draws(self) -> bool:
        return bool(self.lora_dropout or self.neftune_alpha)

    @property
    def deals(self) -> bool:
        return self.pack and not self.draws and self.shares is None and self.balance == "auto"

    def held(self, *, load_in: str = "", weights: str = "", pipes: str = "") -> Self:
        return replace(
            self,
            load_in=load_in or self.load_in,
            weights=weights or self.weights,
            pipes=pipes or self.pipes,
        )

    def proven(self, verdict: Verdict) -> Self:
        self.refuse_unproven(verdict)
        return replace(
            self,
            pack=self.pack and not verdict.unpacked,
            weights="gpu" if verdict.held else self.weights,
            pipes="off" if verdict.whole else self.pipes,
        )

    def refuse_unproven(self, verdict: Verdict) -> None:
        verdict.require(self.model)
        reasons = {
            "weights": verdict.held if self.weights == "stream" else "",
            "pipes": verdict.whole if parse_pipes(self.pipes) else "",
            "method": verdict.full if self.method == "full" else "",
            "precision": {"bf16": verdict.bf16, "fp16": verdict.fp16}.get(self.precision, ""),
        }
        for name, why in reasons.items():
            if why:
                raise BadInput(f"{name}: {getattr(self, name)} does not go with this model: {why}", fix="leave it out")

    @property
    def subject(self) -> str:
        return f"{self.model} · {self.method}"

    @property
    def about(self) -> str:
        return (
            "all weights"
            if self.method == "full"
            else f"{lora_relatives.called(self)} r{self.lora_r} {self.lora_targets}"
        )

    @property
    def rate_reason(self) -> str:
        if self.method != "full" or self.learning_rate != RATES["full"]:
            return ""
        return f"learning rate {self.learning_rate:g}: all weights are trained; an adapter has {RATES['lora']:g}"

    def start_model(self, home: Path | None = None) -> Model:
        return resolve_model(self.model, home)

    def data(self) -> Dataset:
        return data_sets.resolve(self.dataset)

    def prepare_words(self, model_folder: str, file: str = "") -> list[str]:
        words = flags(self, "max_seq_length", "train_on", "eval_fraction", "max_bad")
        return [f"--model={model_folder}", *words, *data_words(self), *([] if self.pack else ["--no-pack"])]


def data_words(config: SftConfig) -> list[str]:
    """What a record is and what stands before each, for who makes the rows, where that is set."""
    words = [f"--format={config.format}"] if config.format != "auto" else []
    return [*words, f"--system={config.system}"] if config.system else words


def require_asking(config: SftConfig) -> None:
    """Requires records that ask something, for a recipe that needs it."""
    if config.format == "text":
        raise BadInput(
            f"format: text does not go with recipe={config.recipe}: a text asks nothing",
            fix="leave it out; to take the texts as what is asked: dataset=FILE?prompt=text",
        )


def refuse_others(config: SftConfig, recipe: str, not_here: Mapping[str, tuple[tuple[object, ...], str]]) -> None:
    """Refuses settings of fine-tuning that mean nothing to another recipe; `not_here`: what they may be, and why."""
    for name, (allowed, why) in not_here.items():
        if getattr(config, name) not in allowed:
            what = f"{name}: {getattr(config, name)} does not go with recipe={recipe}: {why}"
            raise BadInput(what, fix=f"leave {name} out")


COLDEST = 0.01
"""The least temperature: with less, what scores become is no number any more."""


def require_room_for_prompt(row_tokens: int, answer_tokens: int) -> None:
    if (left := row_tokens - answer_tokens) < SHORTEST_PROMPT:
        raise BadInput(
            f"max_seq_length: {row_tokens} tokens leave a prompt {max(0, left)} beside an "
            f"answer of max_new_tokens={answer_tokens}",
            fix=f"max_seq_length={answer_tokens + 256}, or fewer max_new_tokens",
        )


def _check_pipes(config: SftConfig) -> None:
    others = {
        "method": ("full", "lora"),
        "backend": ("unsloth", "hf"),
        "load_in": ("8bit", "4bit or 16bit"),
        "weights": ("stream", "gpu"),
        "sync": ("local", "auto"),
    }
    for name, (value, instead) in others.items():
        if getattr(config, name) == value:
            raise BadInput(
                f"pipes: {config.pipes} and {name}: {value} do not go together", fix=f"use {name}: {instead}"
            )


def _check_stream(config: SftConfig) -> None:
    if config.method == "full":
        raise BadInput("weights: stream is for a frozen base, and method=full trains it", fix="use weights: gpu")
    if config.backend == "unsloth":
        raise BadInput("weights: stream and backend: unsloth do not go together", fix="use backend: hf")
    if config.load_in == "8bit":
        raise BadInput("weights: stream does not know 8 bit", fix="use load_in: 4bit or 16bit")
