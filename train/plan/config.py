"""The settings of a run: one flat, frozen dataclass, checked before anything is started.

Every field says in its metadata how far it reaches:
    math   decides the loss curve: the same on all nodes and unchanged on resume
    agree  the same on all nodes, free to change on resume
    node   belongs to one machine
"""

from __future__ import annotations

import difflib
import json
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from train.cache import home_dir
from train.errors import BadInput
from train.plan.names import check_name
from train.plan.shares import parse_speeds

CHOICES = {
    "method": ("lora", "full"),
    "backend": ("auto", "hf", "unsloth"),
    "device": ("auto", "cpu", "cuda"),
    "load_in": ("auto", "16bit", "8bit", "4bit"),
    "precision": ("auto", "bf16", "fp16", "fp32"),
    "gradient_checkpointing": ("auto", "true", "false", "unsloth"),
    "optimizer": ("adamw", "adamw8bit"),
    "schedule": ("cosine", "linear", "constant"),
    "sync": ("auto", "ddp", "flat", "local"),
    "wire": ("auto", "fp32", "bf16"),
    "balance": ("auto", "even"),
    "train_on": ("answers", "all"),
}


def _option(default: Any, scope: str, text: str) -> Any:
    return field(default=default, metadata={"scope": scope, "help": text})


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What one training run is asked to do; see `python -m train run --help` for the meaning of each field."""

    model: str = _option("tiny", "node", "catalogue name, hub id or local folder of the base model")
    dataset: str = _option("stdlib-qa", "node", "prepared folder, or anything that `prepare` takes")
    run: str = _option("run", "agree", "name of the run; its files carry it")
    home: str = _option("", "node", "where the files of runs are kept (default $MOTLEY_HOME or ~/ai-cluster)")

    max_steps: int | None = _option(None, "math", "number of optimizer steps (or set epochs)")
    epochs: float | None = _option(None, "math", "passes over the rows (default 1 where max_steps is not set)")
    rows_per_step: int = _option(16, "math", "rows of one optimizer step, over all nodes together")
    max_seq_length: int = _option(512, "agree", "tokens of a row, where the dataset is still to be prepared")
    train_on: str = _option("answers", "agree", "answers|all, where the dataset is still to be prepared")
    pack: bool = _option(True, "agree", "several samples in a row, where the dataset is still to be prepared")
    eval_fraction: float = _option(0.05, "agree", "share held out, where the dataset is still to be prepared")
    max_bad: float = _option(0.01, "agree", "bad records of the data set allowed: a share below 1, or a number")
    seed: int = _option(3407, "math", "order of the rows and first adapter weights")

    method: str = _option("lora", "math", "lora, or full fine-tuning (small models)")
    lora_r: int = _option(16, "math", "rank of the adapter")
    lora_alpha: int = _option(16, "math", "scale of the adapter (alpha / r)")
    lora_targets: str = _option("all-linear", "math", "all-linear, or names with commas: q_proj,v_proj")
    rslora: bool = _option(False, "math", "scale by alpha / sqrt(r) instead")
    load_in: str = _option("auto", "math", "how the frozen base is held: 4bit|8bit|16bit|auto")
    precision: str = _option("auto", "math", "arithmetic of the training: bf16|fp16|fp32|auto")
    gradient_checkpointing: str = _option("auto", "agree", "true|false|unsloth|auto: less memory, a third slower")
    backend: str = _option("auto", "agree", "unsloth (GPU) or hf (transformers + peft)")
    device: str = _option("auto", "node", "cpu|cuda|auto")

    learning_rate: float = _option(2e-4, "math", "peak learning rate")
    schedule: str = _option("cosine", "math", "cosine|linear|constant, after the warm-up")
    warmup_steps: int = _option(5, "math", "steps until the peak learning rate")
    weight_decay: float = _option(0.0, "math", "AdamW's weight decay")
    grad_clip: float = _option(1.0, "math", "largest gradient norm; 0 switches clipping off")
    optimizer: str = _option("adamw", "math", "adamw, or adamw8bit (GPU, bitsandbytes)")

    balance: str = _option("auto", "agree", "how rows are shared where `shares` is not set: auto|even")
    shares: tuple[float, ...] | None = _option(None, "agree", "fixed shares, one a process in rank order: 5,2,1")
    speeds: str = _option("", "agree", "first guess of rows/s, until measured: NAME=ROWS,…")
    micro_batch: int | None = _option(None, "node", "rows at a time; found by itself where not set")
    memory_ceiling: float = _option(0.9, "node", "part of the card that the search for micro_batch may fill")
    sync: str = _option("auto", "agree", "ddp|flat|auto: how gradients are added up; local: steps between meetings")
    local_steps: str = _option("auto", "agree", "sync local: steps between two meetings, or auto: as measured")
    outer_learning_rate: float = _option(0.7, "agree", "sync local: how far a meeting goes along the average way")
    outer_momentum: float = _option(0.5, "agree", "sync local: how much of the last meetings' way it keeps (Nesterov)")
    wire: str = _option("auto", "agree", "fp32|bf16|auto: how gradients travel")
    timeout_s: float = _option(300.0, "agree", "a peer silent for so long has failed")

    eval_every: int = _option(0, "agree", "steps between evaluations on the held-out rows; 0: only at the end")
    eval_rows: int = _option(256, "agree", "held-out rows that an evaluation looks at, at most")
    save_every: int = _option(50, "agree", "steps between checkpoints")
    keep: int = _option(3, "agree", "checkpoints kept, beside the best")
    proof_every: int = _option(25, "agree", "steps between comparisons of the adapter over all nodes")
    resume: str = _option("auto", "agree", "auto: go on where this run stopped; never: start anew; RUN: from that run")
    tensorboard: bool = _option(False, "agree", "also write TensorBoard files")

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise BadInput(_wrong(name, getattr(self, name), "|".join(allowed), allowed))
        for name in (
            *("rows_per_step", "lora_r", "lora_alpha", "save_every", "keep", "proof_every", "max_seq_length"),
            "eval_rows",
        ):
            _at_least(self, name, 1)
        for name in ("warmup_steps", "eval_every", "weight_decay", "grad_clip", "seed", "max_bad"):
            _at_least(self, name, 0)
        for name in ("max_steps", "micro_batch"):
            if getattr(self, name) is not None:
                _at_least(self, name, 1)
        if self.max_steps is not None and self.epochs is not None:
            raise BadInput("max_steps and epochs are both set", fix="keep one of them")
        if self.epochs is not None and self.epochs <= 0:
            raise BadInput(f"epochs: {self.epochs} is not above 0")
        if self.learning_rate <= 0 or self.timeout_s <= 0:
            raise BadInput("learning_rate and timeout_s must be above 0")
        _check_local(self)
        _check_parts(self)
        if self.shares is not None and (min(self.shares, default=0) < 0 or sum(self.shares) <= 0):
            raise BadInput("shares: none may be negative and one must be above 0", fix="for example: shares: [5, 2, 1]")
        _check_speeds(self.speeds)
        check_name("run", self.run)
        check_name("resume", self.resume)  # auto and never are names as well

    @property
    def home_folder(self) -> Path:
        return Path(self.home).expanduser() if self.home else home_dir()

    @property
    def log_folder(self) -> Path:
        return self.home_folder / "logs" / "runs" / self.run

    @property
    def result_folder(self) -> Path:
        return self.home_folder / "results" / self.run

    def checkpoint_folder(self, run: str = "") -> Path:
        return self.home_folder / "models" / "checkpoints" / (run or self.run)

    def scoped(self, *scopes: str) -> dict[str, Any]:
        """The fields of these scopes, ready for JSON."""
        names = [f.name for f in fields(self) if f.metadata["scope"] in scopes]
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return {name: values[name] for name in names}


def load_config(values: dict[str, Any]) -> RunConfig:
    """A RunConfig from a config file or flags: text is read as the type that its field has."""
    known = {f.name: f for f in fields(RunConfig)}
    for name in values:
        if name not in known:
            raise BadInput(f"unknown setting '{name}'{nearest(name, known)}", fix="see: python -m train run --help")
    return RunConfig(**{name: coerce(known[name], value) for name, value in values.items()})


def read_yaml(file: Path, kind: str) -> dict[str, Any]:
    """The settings in a file, whatever they mean."""
    import yaml

    try:
        values = yaml.safe_load(file.read_text()) or {}
    except OSError as error:
        raise BadInput(f"the {kind} cannot be read: {error.strerror}", f"file: {file}") from None
    except yaml.YAMLError as error:
        raise BadInput(f"the {kind} is not YAML", f"file: {file}", " ".join(str(error).split())) from None
    if not isinstance(values, dict):
        raise BadInput(f"the {kind} holds no settings", f"file: {file}", "write lines like: rows_per_step: 16")
    return {str(name): value for name, value in values.items()}


def coerce(spec: Field[Any], value: Any) -> Any:
    """A value from YAML or the command line as the field's type."""
    kind = str(spec.type).removesuffix(" | None")
    if value is None or (value in ("", "none", "null") and spec.default is None):
        return _required(spec)
    try:
        return _READERS[kind](value)
    except (TypeError, ValueError):
        raise BadInput(f"{spec.name}: '{value}' is not {_NOUNS[kind]}") from None


def nearest(word: str, known: Any) -> str:
    """`, did you mean 'x'?` or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f", did you mean '{close[0]}'?" if close else ""


def _required(spec: Field[Any]) -> Any:
    if spec.default is MISSING or spec.default is not None:
        raise BadInput(f"{spec.name}: a value is missing")
    return None


def _integer(value: Any) -> int:
    if isinstance(value, bool) or float(value) != int(float(value)):
        raise ValueError
    return int(float(value))


def _boolean(value: Any) -> bool:
    return {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}[
        str(value).lower()
    ]


def _read_boolean(value: Any) -> bool:
    try:
        return _boolean(value)
    except KeyError:
        raise ValueError from None


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={item}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _numbers(value: Any) -> tuple[float, ...]:
    items = value.strip("[]").split(",") if isinstance(value, str) else value
    return tuple(float(item) for item in items)


_READERS: dict[str, Any] = {
    "int": _integer,
    "float": float,
    "bool": _read_boolean,
    "str": _word,
    "tuple[float, ...]": _numbers,
}
_NOUNS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a word",
    "tuple[float, ...]": "a list of numbers",
}


def _wrong(name: str, value: str, allowed_text: str, allowed: tuple[str, ...]) -> str:
    return f"{name}: '{value}' is none of {allowed_text}{nearest(value, allowed)}"


def _at_least(config: RunConfig, name: str, least: float) -> None:
    if getattr(config, name) < least:
        raise BadInput(f"{name}: {getattr(config, name)} is below {least}")


def _check_parts(config: RunConfig) -> None:
    if not 0 <= config.eval_fraction < 1:
        raise BadInput(f"eval_fraction: {config.eval_fraction} is not from 0 to below 1")
    if not 0.1 <= config.memory_ceiling <= 1:
        raise BadInput(f"memory_ceiling: {config.memory_ceiling} is not between 0.1 and 1")


def _check_local(config: RunConfig) -> None:
    if config.local_steps != "auto" and not (config.local_steps.isdecimal() and int(config.local_steps) > 0):
        raise BadInput(f"local_steps: '{config.local_steps}' is neither auto nor a number above 0")
    if config.outer_learning_rate <= 0 or not 0 <= config.outer_momentum < 1:
        raise BadInput("outer_learning_rate must be above 0, and outer_momentum from 0 to below 1")
    if config.sync == "local" and config.optimizer != "adamw":
        raise BadInput(f"sync: local cannot average the moments of {config.optimizer}", fix="use optimizer: adamw")


def _check_speeds(text: str) -> None:
    try:
        parse_speeds(text)
    except ValueError as error:
        raise BadInput(f"speeds: {error}", fix="for example: speeds: desktop=11.3,laptop=6.1") from None
