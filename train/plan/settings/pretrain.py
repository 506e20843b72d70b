"""The settings of a language model from nothing (recipe=pretrain), beside those that every run has.

All of them are filled in when they are read: a run knows its width and its learning rate as numbers, so that nothing of
what it computes changes when a default does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from train.errors import BadInput
from train.plan.model import shape
from train.plan.model.catalogue import Dataset, Facts, Model, model_facts, resolve_dataset, resolve_model
from train.plan.model.memory import parameters
from train.plan.model.shape import SIZES, Shape
from train.plan.settings.every_run import DATA_FORMATS, RunConfig, at_least, option
from train.plan.settings.file_settings import TOKENIZERS
from train.plan.values import Settings
from train.runlog import paths

TOKENS_PER_STEP = 32768


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(RunConfig):
    PREPARES: ClassVar[str] = "train.recipes.pretrain.rows"
    RESULT: ClassVar[str] = paths.MODEL
    REQUIRED: ClassVar[frozenset[str]] = frozenset({"dataset"})
    COUNTED: ClassVar[tuple[str, ...]] = (
        "recipe", "hidden_size", "layers", "heads", "kv_heads", "intermediate_size", "vocab_size", "tie_embeddings",
    )  # fmt: skip
    TOGETHER: ClassVar[frozenset[str]] = frozenset(
        {*COUNTED, "size", "tokenizer", "tokens_per_step", "rows_per_step", "max_seq_length"} - {"recipe"}
    )

    recipe: str = option("pretrain", "math", "sft: fine-tune a model; pretrain: a new one", ("pretrain",))
    size: str = option("", "agree", f"a size by name: {'|'.join(SIZES)} (without numbers of its own: 10m)")
    hidden_size: int = option(0, "math", "width of the model; 0: as the size has it")
    layers: int = option(0, "math", "its blocks; 0: as the size has it, or as is usual for the width")
    heads: int = option(0, "math", "attention heads, which must divide the width; 0: each about 64 wide")
    kv_heads: int = option(0, "math", "heads of keys and values, which must divide the heads; 0: as many")
    intermediate_size: int = option(0, "math", "width inside a block's MLP; 0: 8/3 of the width")
    tie_embeddings: bool = option(True, "math", "one table for tokens that come in and that go out")

    format: str = option(
        "auto", "agree", "what a record of the data is, where it is still to be prepared", ("auto", *DATA_FORMATS)
    )
    tokenizer: str = option("bpe", "math", "bpe: learned from the data; bytes; chars; or a model that has one")
    vocab_size: int = option(0, "math", "tokens that the tokenizer may have; 0: as the size has it")
    max_seq_length: int = option(512, "math", "tokens of a row, and positions of the model")
    tokens_per_step: int = option(0, "math", f"tokens of one step, over all nodes together (default {TOKENS_PER_STEP})")
    rows_per_step: int = option(0, "math", "the same in rows; 0: as tokens_per_step says")

    optimizer: str = option(
        "adamw",
        "math",
        "adamw; muon: fewer steps, half as many bytes more; adamw8bit (GPU, bitsandbytes)",
        ("adamw", "muon", "adamw8bit"),
    )
    learning_rate: float = option(0.0, "math", "peak learning rate; 0: by the width, 6e-4 where it is 768")
    warmup_steps: int = option(100, "math", "steps until the peak learning rate")
    weight_decay: float = option(0.1, "math", "AdamW's weight decay; none on norms and embeddings")
    beta2: float = option(0.95, "math", "AdamW's memory of squared gradients")
    eval_every: int = option(100, "agree", "steps between evaluations, each with three lines that the model writes")

    def __post_init__(self) -> None:
        if self.size and self.size not in SIZES:
            raise BadInput(f"size: '{self.size}' is none of {'|'.join(SIZES)}", fix="or give hidden_size and layers")
        for name in (
            *("hidden_size", "layers", "heads", "kv_heads", "intermediate_size", "vocab_size"),
            *("tokens_per_step", "rows_per_step", "learning_rate"),
        ):
            at_least(self, name, 0)
        if self.max_seq_length < 8:
            raise BadInput(f"max_seq_length: {self.max_seq_length} is below 8", fix="512 is a usual length")
        if not 0 < self.beta2 < 1:
            raise BadInput(f"beta2: {self.beta2} is not between 0 and 1")
        whole = shape.complete(self.shape, self.size, self.tokenizer)
        rows = self._rows()
        filled: Settings = {name: getattr(whole, name) for name in Shape.__slots__}
        filled |= {"rows_per_step": rows, "tokens_per_step": rows * self.max_seq_length}
        filled |= {"learning_rate": self.learning_rate or shape.peak_rate(whole.hidden_size)}
        for name, value in filled.items():
            object.__setattr__(self, name, value)
        super().__post_init__()

    def _rows(self) -> int:
        """The rows of one step; BadInput where rows and tokens do not mean the same."""
        length, tokens = self.max_seq_length, self.tokens_per_step
        if self.rows_per_step:
            if tokens and tokens != self.rows_per_step * length:
                raise BadInput(
                    f"tokens_per_step and rows_per_step are both set: {tokens} tokens are not "
                    f"{self.rows_per_step} rows of {length}",
                    fix="keep one of them",
                )
            return self.rows_per_step
        if not tokens:
            return max(1, TOKENS_PER_STEP // length)
        if tokens % length:
            below = tokens // length * length
            fitting = [count for count in (below, below + length) if count]
            raise BadInput(
                f"tokens_per_step: {tokens} tokens are no whole number of rows of {length}",
                fix=f"nearest that are: {shape.joined('tokens_per_step', fitting)}",
            )
        return tokens // length

    @property
    def shape(self) -> Shape:
        return Shape(**{name: getattr(self, name) for name in Shape.__slots__})

    @property
    def has_own_tokenizer(self) -> bool:
        """Made of the data, or of nothing; else it is another model's."""
        return self.tokenizer in TOKENIZERS

    def facts(self, vocabulary: int = 0) -> Facts:
        """`vocabulary`: of the tokenizer that was made; before, what it may have at most."""
        tokens = vocabulary or self.vocab_size or model_facts(resolve_model(self.tokenizer)).vocab
        return replace(self.shape, vocab_size=tokens).facts(tied=self.tie_embeddings, positions=self.max_seq_length)

    @property
    def subject(self) -> str:
        return f"a new Llama · {self.layers} layers, {self.hidden_size} wide,"

    @property
    def about(self) -> str:
        return "from nothing, all"

    def start_model(self, home: Path | None = None) -> Model:
        facts = self.facts()
        words = f"{facts.layers} layers, {facts.hidden} wide, {facts.heads} heads, a vocabulary of up to {facts.vocab}"
        reason = f"a new Llama of {parameters(facts) / 1e6:.1f} M weights: {words}"
        size = self.size or (shape.DEFAULT_SIZE if self.hidden_size == SIZES[shape.DEFAULT_SIZE].hidden_size else "")
        return Model(name=shape.title(facts, size), source="new", reason=reason, facts=facts)

    def sizes(self) -> dict[str, RunConfig]:
        kept = {name: value for name, value in vars(self).items() if name not in (*Shape.__slots__, "learning_rate")}
        return {name: PretrainConfig(**{**kept, "size": name}) for name in SIZES}

    def data(self) -> Dataset:
        return resolve_dataset(self.dataset, folders=True)

    def tokenizer_model(self, home: Path | None = None) -> Model | None:
        return None if self.has_own_tokenizer else resolve_model(self.tokenizer, home)

    def prepare_words(self, model_folder: str, file: str = "") -> list[str]:
        names = ("recipe", "tokenizer", "vocab_size", "max_seq_length", "eval_fraction", "max_bad", "format")
        left_out = [] if self.has_own_tokenizer else ["vocab_size"]
        left_out += ["format"] if self.format == "auto" else []
        chosen = {name: getattr(self, name) for name in names if name not in left_out}
        chosen |= {"tokenizer": model_folder} if model_folder else {}
        return [f"--{name.replace('_', '-')}={value}" for name, value in chosen.items()]

    @property
    def step_words(self) -> tuple[int, str]:
        return self.tokens_per_step, "tokens"

    def larger_step(self, rows: int) -> Settings:
        return {"tokens_per_step": rows * self.max_seq_length}
