"""The settings that every run has: one flat, frozen dataclass, checked before anything is started.

Every field says in its metadata how far it reaches:
    math   decides the loss curve: the same on all nodes and unchanged on resume
    agree  the same on all nodes, free to change on resume
    node   belongs to one machine
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from train.cache import home_dir
from train.errors import BadInput
from train.plan.model.catalogue import AnyFacts, Dataset, HubConfig, Model, facts_of
from train.plan.model.verdict import Verdict
from train.plan.run_name import check_name
from train.plan.settings.profile import profiled_steps
from train.plan.speed.row_split import parse_speeds
from train.plan.values import Settings, nearest
from train.runlog import paths


@dataclass(frozen=True, kw_only=True, slots=True)
class Holding:
    """How the model of a run is held while it trains, and what of it is trained: all that memory and traffic need."""

    backend: str = "hf"
    load_in: str = "16bit"
    full: bool = True
    """All weights are trained, and exchanged."""
    lora_r: int = 16
    lora_targets: str = "all-linear"
    weights: str = "gpu"
    """Where the frozen base is: gpu, stream or auto."""
    pipes: str = "off"
    """Which machines hold the base together: auto, off or a+b,c."""
    dora: bool = False
    lora_init: str = "default"
    lora_dropout: float = 0.0
    neftune_alpha: float = 0.0
    trains: bool = True
    """Whether anything is trained: else the model only answers."""


def flags(config: RunConfig, *names: str) -> list[str]:
    """These settings as flags of `python -m train`."""
    return [f"--{name.replace('_', '-')}={getattr(config, name)}" for name in names]


def option(default: Any, scope: str, text: str, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"scope": scope, "help": text, "choices": choices})


DATA_FORMATS = ("chat", "sharegpt", "alpaca", "prompt", "text")
"""What a record of text may be, by the names of train/data/convert_record.py."""
LEAST_STEPS = 50
"""Least steps where nobody set a length: packed, a thousand short records are two steps a pass, and teach nothing."""
LENGTH_RULE = "fewer teach little; set epochs or max_steps for another length"
COMMON_COUNTS = (
    *("max_seq_length", "micro_batch", "device", "gradient_checkpointing", "precision"),
    *("rows_per_step", "memory_ceiling", "optimizer"),  # on a card they decide the micro-batch
)
"""What a machine's speed depends on, beside the recipe's own."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What every run is asked to do, whatever it trains; see `python -m train run --help` for each field's meaning.

    Each recipe adds settings of its own, and may have other defaults (sft.py, pretrain.py, images.py).
    """

    recipe: str = option(
        "sft",
        "math",
        "sft: fine-tune; preference: prefer one answer; grpo: train by rewards; pretrain: a new language model; "
        "images; generate: answer many prompts; sweep: the best settings of one of them; evaluate: ask tasks",
    )
    dataset: str = option("stdlib-qa", "node", "prepared folder, or anything that `prepare` takes")
    run: str = option("run", "agree", "name of the run; its files carry it")
    home: str = option("", "node", "where the files of runs are kept (default $MOTLEY_HOME or ~/ai-cluster)")

    max_steps: int | None = option(None, "math", "number of optimizer steps (or set epochs)")
    epochs: float | None = option(None, "math", "passes over the rows; neither: 1, but 50 steps at least")
    rows_per_step: int = option(16, "math", "rows of one optimizer step, over all nodes together")
    max_seq_length: int = option(512, "agree", "tokens of a row, where the dataset is still to be prepared")
    eval_fraction: float = option(0.05, "agree", "share held out, where the dataset is still to be prepared")
    max_bad: float = option(0.01, "agree", "bad records of the data set allowed: a share below 1, or a number")
    seed: int = option(3407, "math", "order of the rows and first trained weights")

    precision: str = option("auto", "math", "arithmetic: bf16|fp16|fp32|auto", ("auto", "bf16", "fp16", "fp32"))
    gradient_checkpointing: str = option(
        "auto", "agree", "true|false|unsloth|auto: less memory, a third slower", ("auto", "true", "false", "unsloth")
    )
    device: str = option("auto", "node", "cpu|cuda|auto", ("auto", "cpu", "cuda"))

    learning_rate: float = option(2e-4, "math", "peak learning rate")
    schedule: str = option(
        "cosine",
        "math",
        "cosine|linear|constant|wsd, after the warm-up",
        ("cosine", "linear", "constant", "wsd"),
    )
    warmup_steps: int = option(5, "math", "steps until the peak learning rate; its default is a tenth of all at most")
    weight_decay: float = option(0.0, "math", "AdamW's weight decay")
    grad_clip: float = option(1.0, "math", "largest gradient norm; 0 switches clipping off")
    optimizer: str = option("adamw", "math", "adamw, or adamw8bit (GPU, bitsandbytes)", ("adamw", "adamw8bit"))

    balance: str = option("auto", "agree", "how rows are shared where `shares` is not set: auto|even", ("auto", "even"))
    shares: tuple[float, ...] | None = option(None, "agree", "fixed shares, one a process in rank order: 5,2,1")
    speeds: str = option("", "agree", "first guess of rows/s, until measured: NAME=ROWS,…")
    micro_batch: int | None = option(None, "node", "rows at a time; found automatically if not set")
    memory_ceiling: float = option(0.9, "node", "part of the GPU's memory that the search for micro_batch may fill")
    sync: str = option(
        "auto",
        "agree",
        "ddp|flat|auto: how gradients are combined; local: steps between syncs",
        ("auto", "ddp", "flat", "local"),
    )
    local_steps: str = option("auto", "agree", "sync local: inner steps between two syncs, or auto: as measured")
    outer_learning_rate: float = option(0.7, "agree", "sync local: size of the outer step, along the average delta")
    outer_momentum: float = option(0.5, "agree", "sync local: how much of the last outer steps it keeps (Nesterov)")
    wire: str = option("auto", "agree", "fp32|bf16|auto: how gradients travel", ("auto", "fp32", "bf16"))
    exchange: str = option(
        "auto", "agree", "gloo|nccl|auto: how cards exchange; auto: nccl within one machine", ("auto", "gloo", "nccl")
    )
    timeout_s: float = option(300.0, "agree", "a peer silent for so long has failed, where no agent watches it")

    eval_every: int = option(0, "agree", "steps between evaluations on the held-out rows; 0: only at the end")
    patience: int = option(0, "agree", "evaluations without a gain of 0.1 % until the run ends; 0: it never does")
    eval_rows: int = option(256, "agree", "held-out rows that an evaluation looks at, at most")
    save_every: int = option(50, "agree", "steps between checkpoints")
    keep: int = option(3, "agree", "checkpoints kept, beside the best")
    proof_every: int = option(25, "agree", "steps between comparisons of the trained weights over all nodes")
    resume: str = option("auto", "agree", "auto: continue where it stopped; never: start again; RUN: from that run")
    profile: str = option("", "agree", "steps to record with torch.profiler on every node: 20-23")
    tensorboard: bool = option(False, "agree", "also write TensorBoard files")

    def __post_init__(self) -> None:
        for spec in fields(self):
            allowed, value = spec.metadata["choices"], getattr(self, spec.name)
            if allowed and value not in allowed:
                raise BadInput(f"{spec.name}: '{value}' is none of {'|'.join(allowed)}{nearest(value, allowed)}")
        for name in ("rows_per_step", "save_every", "keep", "proof_every", "max_seq_length", "eval_rows"):
            at_least(self, name, 1)
        for name in ("warmup_steps", "eval_every", "patience", "weight_decay", "grad_clip", "seed", "max_bad"):
            at_least(self, name, 0)
        for name in ("max_steps", "micro_batch"):
            if getattr(self, name) is not None:
                at_least(self, name, 1)
        if self.max_steps is not None and self.epochs is not None:
            raise BadInput("max_steps and epochs are both set", fix="keep one of them")
        if self.epochs is not None and self.epochs <= 0:
            raise BadInput(f"epochs: {self.epochs} is not above 0")
        if self.learning_rate <= 0 or self.timeout_s <= 0:
            raise BadInput("learning_rate and timeout_s must be above 0")
        if self.learning_rate > 100:  # 2e4, where 2e-4 was meant; SGD takes 3 for thousands of pictures a step
            raise BadInput(
                f"learning_rate: {self.learning_rate:g} is above 100", fix="for example: --learning-rate 2e-4"
            )
        _check_local(self)
        _check_parts(self)
        if self.shares is not None and (min(self.shares, default=0) < 0 or sum(self.shares) <= 0):
            raise BadInput("shares: none may be negative and one must be above 0", fix="for example: shares: [5, 2, 1]")
        _check_speeds(self.speeds)
        if profiled_steps(self.profile).start > (self.max_steps or float("inf")):
            raise BadInput(f"profile: {self.profile} is after the last step, {self.max_steps}", fix="profile=1-4")
        check_name("run", self.run)
        check_name("resume", self.resume)  # auto and never are names as well

    # -- what a recipe answers ------------------------------------------------------------------------------------

    TOGETHER: ClassVar[frozenset[str]] = frozenset()
    """Settings that mean something only beside each other: none of them is checked alone."""
    COUNTED: ClassVar[tuple[str, ...]] = ()
    """Settings of the recipe's own that a machine's speed depends on."""
    REQUIRED: ClassVar[frozenset[str]] = frozenset()
    """Settings that a launch must name."""
    ROW_UNIT: ClassVar[str] = "tokens"
    """What a row is made of."""
    PACKAGES: ClassVar[str] = ""
    """The locked set of packages that it needs beside the nodes' own (plan/launch/extra_packages.py)."""
    PREPARES: ClassVar[str]
    """The module that makes rows of the data."""
    SIDE_BY_SIDE: ClassVar[str] = "answers_at_once"
    """The setting that says how many answers a machine makes at a time, of a recipe that has one."""
    IN_PIECES: ClassVar[bool] = False
    """Whether each machine works by itself, on pieces that it takes from one list (train/pool)."""
    COMPARES: ClassVar[bool] = False
    """Whether its trials are compared by held-out rows."""
    RESULT: ClassVar[str]
    """What a run makes, and the name of its folder: adapter or model."""

    @property
    def counted(self) -> Settings:
        """What of the recipe's own a machine's speed depends on."""
        return {name: getattr(self, name) for name in self.COUNTED}

    @property
    def holding(self) -> Holding:
        return Holding()

    @property
    def draws(self) -> bool:
        """Whether each row needs its number: something is drawn for it while it trains."""
        return False

    @property
    def deals(self) -> bool:
        """Whether a run deals the samples of last rows out (engine/split_last_rows.py), as far as settings say. Where
        texts are longer than a row, as mostly with recipe=pretrain, there is little to deal."""
        return False

    def held(self, *, load_in: str = "", weights: str = "", pipes: str = "") -> Self:
        """The settings with what was decided of a frozen base; the same for a recipe that has none."""
        return self

    def proven(self, verdict: Verdict) -> Self:
        """The settings with what the model can do in place of what it cannot; BadInput where that was asked for."""
        return self

    @property
    def subject(self) -> str:
        """What is trained, for the log of a run."""
        raise NotImplementedError

    @property
    def about(self) -> str:
        """What is trained, in a few words for a plan's first line."""
        raise NotImplementedError

    @property
    def row_words(self) -> str:
        """A step, in the words of a plan."""
        return f"{self.rows_per_step} rows" + (f" × {self.max_seq_length} tokens" if self.ROW_UNIT == "tokens" else "")

    @property
    def step_words(self) -> tuple[int, str]:
        """How much of what a step is."""
        return self.rows_per_step, "rows"

    @property
    def lines_of_row(self) -> int:
        """Sequences of max_seq_length tokens that a row is, side by side."""
        return 1

    @property
    def drawn_per_step(self) -> int:
        """Rows of the data that a step takes."""
        return self.rows_per_step

    @property
    def steps_per_draw(self) -> int:
        """Steps that follow one another on the same rows of the data."""
        return 1

    @property
    def answers_side_by_side(self) -> int:
        """Answers that a machine makes at a time while it trains; 0 where it makes none."""
        return 0

    @property
    def has_server(self) -> bool:
        """Whether a server beside the training makes the answers, which holds the base once more."""
        return False

    @property
    def runs_of_one_machine(self) -> dict[str, RunConfig]:
        """Runs that are known before and that some machine has to hold by itself, by what is told of each."""
        return {}

    @property
    def rate_reason(self) -> str:
        """Why the learning rate is what it is, where it follows from a rule."""
        return ""

    @property
    def length_is_set(self) -> bool:
        return self.max_steps is not None or self.epochs is not None

    @property
    def usual_epochs(self) -> float:
        """Passes over the rows where nobody has set a length, and they are LEAST_STEPS."""
        return 1

    def steps_over(self, rows: int) -> int:
        """All steps of the run, with so many rows to train on."""
        draws = math.ceil((self.epochs or self.usual_epochs) * rows / self.drawn_per_step)
        steps = self.max_steps or draws * self.steps_per_draw
        return steps if self.length_is_set else max(steps, LEAST_STEPS)

    def warm_up(self, steps: int) -> int:
        """Steps until the peak rate, of so many. Set to what is the default, it gives way to a short run too."""
        is_usual = self.warmup_steps == type(self).warmup_steps
        return min(self.warmup_steps, steps // 10) if is_usual else self.warmup_steps

    def length_reasons(self, rows: int) -> list[str]:
        """What of it follows from a rule, for the start of a run."""
        steps, reasons = self.steps_over(rows), list[str]()
        passes = steps * self.drawn_per_step / self.steps_per_draw / max(1, rows)
        if not self.length_is_set and steps == LEAST_STEPS:
            reasons.append(f"{steps} steps, {passes:.1f} times through the data: {LENGTH_RULE}")
        if self.warm_up(steps) != self.warmup_steps:
            reasons.append(f"warm-up of {self.warm_up(steps)} steps, a tenth of {steps}: set warmup_steps for another")
        elif self.warmup_steps >= steps:
            reasons.append(f"warm-up in all {steps} steps: the learning rate never gets to its peak (warmup_steps)")
        return reasons

    def facts_of(self, config: Mapping[str, Any], where: str) -> AnyFacts:
        """The shape in a model's own config.json."""
        return facts_of(cast(HubConfig, config), where)

    def start_model(self, home: Path | None = None) -> Model:
        """What the run begins with; `home`: where models that were fetched here lie."""
        raise NotImplementedError

    def data(self) -> Dataset:
        raise NotImplementedError

    def tokenizer_model(self, home: Path | None = None) -> Model | None:
        """A model of which the tokenizer alone is wanted."""
        return None

    @property
    def file_to_bring(self) -> tuple[str, Path] | None:
        """A file of one's own that the head needs beside the data, and what it is: a recipe, or rewards."""
        return None

    def prepare_words(self, model_folder: str, file: str = "") -> list[str]:
        """How the head is told to make the rows, beside the data; `model_folder`: whose tokenizer it takes; `file`:
        where it has that of one's own."""
        raise NotImplementedError

    def larger_step(self, rows: int) -> Settings:
        """The setting by which a step has that many rows."""
        return {"rows_per_step": rows}

    def sizes(self) -> dict[str, RunConfig]:
        """The same run with each size that has a name."""
        return {}

    # -- where its files are --------------------------------------------------------------------------------------

    @property
    def home_folder(self) -> Path:
        return Path(self.home).expanduser() if self.home else home_dir()

    @property
    def log_folder(self) -> Path:
        return paths.logs(self.home_folder, self.run)

    @property
    def result_folder(self) -> Path:
        return paths.results(self.home_folder, self.run)

    def checkpoint_folder(self, run: str = "") -> Path:
        return paths.checkpoints(self.home_folder, run or self.run)

    def scoped(self, *scopes: str) -> Settings:
        """The fields of these scopes, ready for JSON."""
        names = [f.name for f in fields(self) if f.metadata["scope"] in scopes]
        values: Settings = json.loads(json.dumps(asdict(self)))
        return {name: values[name] for name in names}


def at_least(config: RunConfig, name: str, least: float) -> None:
    if getattr(config, name) < least:
        raise BadInput(f"{name}: {getattr(config, name)} is below {least}")


def _check_parts(config: RunConfig) -> None:
    if not 0 <= config.eval_fraction < 1:
        raise BadInput(f"eval_fraction: {config.eval_fraction} is not from 0 to below 1")
    if config.patience and not config.eval_fraction:
        fix = "eval_fraction=0.05, or leave patience out"
        raise BadInput(f"patience: {config.patience} needs held-out rows, and eval_fraction is 0", fix=fix)
    if not 0.1 <= config.memory_ceiling <= 1:
        raise BadInput(f"memory_ceiling: {config.memory_ceiling} is not between 0.1 and 1")


def _check_local(config: RunConfig) -> None:
    if config.local_steps != "auto" and not (config.local_steps.isdecimal() and int(config.local_steps) > 0):
        raise BadInput(f"local_steps: '{config.local_steps}' is neither auto nor a number above 0")
    if config.outer_learning_rate <= 0 or not 0 <= config.outer_momentum < 1:
        raise BadInput("outer_learning_rate must be above 0, and outer_momentum from 0 to below 1")
    if config.sync == "local" and config.optimizer != "adamw":
        raise BadInput(f"sync: local does not go with optimizer: {config.optimizer}", fix="use optimizer: adamw")


def _check_speeds(text: str) -> None:
    try:
        parse_speeds(text)
    except ValueError as error:
        raise BadInput(f"speeds: {error}", fix="for example: speeds: desktop=11.3,laptop=6.1") from None
