"""The settings of a sweep (recipe=sweep), beside all those of the recipe whose trials it runs.

A sweep of fine-tuning has each setting of fine-tuning, which all trials share, and `search`: the ones that differ. So
it is asked for, checked, planned and prepared like the run that each trial is.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from train.errors import BadInput
from train.plan.settings.every_run import RunConfig, at_least, option
from train.plan.settings.ranges import Choice, Searched, combinations, count, parse
from train.plan.values import Settings
from train.runlog import paths

MOST_TRIALS = 1000
PRUNERS = ("asha", "hyperband", "off")
LOOKS = 8
"""Evaluations of a trial where nobody has set `eval_every`: often enough to end a bad one early."""
ROWS = "the rows are made once, for all trials"
MEASURE = "it changes the held-out loss itself, so the trials could not be compared"
CLOSED = {
    **dict.fromkeys(("max_seq_length", "tokenizer", "vocab_size", "image_size"), ROWS),
    **dict.fromkeys(("train_on", "format", "pack", "system", "chat_template", "eval_fraction", "max_bad"), ROWS),
    **dict.fromkeys(("eval_rows", "center_rewards_coefficient", "label_smoothing", "simpo_gamma"), MEASURE),
    **dict.fromkeys(("model", "dataset", "adapter", "rewards", "size", "engine"), "each is brought to all machines"),
}
"""Settings that no sweep can change, and why."""
ONE_MACHINE = {
    "pipes": ("auto", "off"),
    "shares": (None,),
    "sync": ("auto", "ddp", "flat"),
}
"""Settings of several machines that train together, with the values that mean nothing to one alone."""


AGAIN = {"max_steps": "epochs", "epochs": "max_steps"}
"""Settings of which one alone is set."""
if TYPE_CHECKING:
    Base = RunConfig
else:  # beside the settings of a recipe, whose defaults stay
    Base = object


@dataclass(frozen=True, kw_only=True)
class Sweep(Base):
    """What a sweep of any recipe has; `of` adds it to the settings of one."""

    PACKAGES: ClassVar[str] = "sweep"
    IN_PIECES: ClassVar[bool] = True
    COMPARES: ClassVar[bool] = True
    RESULT: ClassVar[str] = paths.SWEEP
    KIND: ClassVar[type[RunConfig]] = RunConfig
    """The settings of a trial."""

    recipe: str = option("sweep", "math", "sweep: many trials, to find the best settings", ("sweep",))
    trains: str = option("sft", "math", "with recipe=sweep: what each trial is")
    search: str = option("", "math", "what is tried: learning_rate=1e-5..1e-3:log lora_r=8,16,32")
    trials: int = option(20, "agree", "how many trials; raise it to continue a sweep that has ended")
    grid: bool = option(False, "math", "every combination of what is listed, in place of `trials`")
    prune: str = option("asha", "agree", "asha|hyperband|off: what ends a trial that falls behind", PRUNERS)

    def __post_init__(self) -> None:
        searched = self.searched
        names = [one.name for one in searched]
        for name, allowed in ONE_MACHINE.items():
            if getattr(self, name, allowed[0]) not in allowed:
                what = f"{name}: {getattr(self, name)} is for machines that train together, and each trial has one"
                raise BadInput(what, fix=f"leave {name} out")
        if getattr(self, "pipes", "") == "auto":
            object.__setattr__(self, "pipes", "off")
        for one in searched:  # what a plan shows and measures is the first of them
            object.__setattr__(self, one.name, one.ends[0])
            if (other := AGAIN.get(one.name)) and other not in names:
                object.__setattr__(self, other, None)
        super().__post_init__()
        if not self.eval_fraction:
            raise BadInput("eval_fraction: trials are compared by held-out rows", fix="eval_fraction=0.05")
        self._check_number()
        for one in searched:
            for value in one.ends:
                self._try({one.name: value}, one)

    def _check_number(self) -> None:
        at_least(self, "trials", 1)
        ranges = [searched.name for searched in self.searched if not isinstance(searched, Choice)]
        if self.grid and ranges:
            fix = f"list values: {ranges[0]}=A,B; or leave grid out"
            raise BadInput(f"grid: {ranges[0]} is a range, which has no end of values", fix=fix)
        if (most := count(self.searched) if self.grid else self.trials) > MOST_TRIALS:
            what = "grid" if self.grid else "trials"
            raise BadInput(f"{what}: {most} trials are more than {MOST_TRIALS}", fix="fewer values, or trials=N")
        if self.grid and self.searched and not self.planned:
            raise BadInput("grid: no combination of these values goes together", fix="other values")

    def _try(self, chosen: Settings, one: Searched) -> None:
        """Refuses a value that does not go; one that does not go alone may go beside another that is tried."""
        others = [other for other in self.searched if other.name != one.name]
        beside = others and (one.name in self.KIND.TOGETHER or {other.name for other in others} & self.KIND.TOGETHER)
        try:
            self.trial(chosen)
        except BadInput as wrong:
            if not beside:
                raise BadInput(f"search: {wrong}") from None

    @cached_property
    def searched(self) -> list[Searched]:
        known = {spec.name: spec for spec in fields(self.KIND) if spec.metadata["scope"] == "math"}
        for name in ("recipe", "adapter_hash", "rewards_hash"):
            known.pop(name, None)
        of_pairs = {"loss": MEASURE, "beta": MEASURE} if self.trains == "preference" else {}
        others = {spec.name: "trials share it" for spec in fields(self.KIND) if spec.name not in known}
        return parse(self.search, known, others | CLOSED | of_pairs) if self.search else []

    @cached_property
    def planned(self) -> list[Settings]:
        """Every trial, where they are known before: all that is listed and goes together. Else empty."""
        most = count(self.searched)
        if not most or not (self.grid or most <= self.trials):
            return []
        return [chosen for chosen in combinations(self.searched) if self.goes(chosen)]

    @property
    def runs_of_one_machine(self) -> dict[str, RunConfig]:
        """What nobody could take would be waited for: of a search without an end another trial is proposed instead."""
        named = {" ".join(f"{name}={value}" for name, value in chosen.items()): chosen for chosen in self.planned}
        return {words: self.trial(chosen) for words, chosen in named.items()}

    @property
    def total_trials(self) -> int:
        return len(self.planned) or self.trials

    def goes(self, chosen: Settings) -> bool:
        """Whether these settings go together."""
        try:
            self.trial(chosen)
        except BadInput:
            return False
        return True

    def trial(self, chosen: Settings, **more: Any) -> RunConfig:
        """The settings of one trial. `more`: where it is, and what it is called."""
        return self.KIND(**(self.shared | chosen | more))

    @cached_property
    def shared(self) -> Settings:
        """What all trials have. A value that follows from others by a rule is left to it: with another method or width
        another learning rate is the usual one."""
        kind, names = self.KIND, {one.name for one in self.searched}
        given = {
            spec.name: getattr(self, spec.name)
            for spec in fields(kind)
            if spec.name != "recipe" and getattr(self, spec.name) != spec.default
        }
        for name, value in [pair for pair in given.items() if pair[0] not in names]:
            others = {other: known for other, known in given.items() if other != name}
            if follows(kind, others, name, value):
                given = others
        return given

    def sizes(self) -> dict[str, RunConfig]:
        """None: between the machines of a sweep no weights travel, by which a size is chosen."""
        return {}

    def look_every(self, total_steps: int) -> int:
        """Steps between the evaluations of a trial."""
        return self.eval_every or max(1, total_steps // LOOKS)

    def prepare_words(self, model_folder: str, file: str = "") -> list[str]:
        return self.trial({}).prepare_words(model_folder, file)

    @property
    def subject(self) -> str:
        return f"sweep of {super().subject}"

    @property
    def about(self) -> str:
        tried = ", ".join(one.words for one in self.searched)
        return f"{super().about}, tried with {tried}"

    @property
    def row_words(self) -> str:
        return f"{self.total_trials} trials"


def follows(kind: type[RunConfig], others: Settings, name: str, value: Any) -> bool:
    """Whether the other settings make it what it is."""
    try:
        return bool(getattr(kind(**others), name) == value)
    except BadInput:
        return False


def of(kind: type[RunConfig], recipe: str) -> type[Sweep]:
    """The settings of a sweep of this recipe."""
    if recipe not in _made:
        added = {
            "__annotations__": {"trains": "str"},
            "trains": option(recipe, "math", "with recipe=sweep: what each trial is", (recipe,)),
            "KIND": kind,
            "REQUIRED": kind.REQUIRED | {"search"},
            "TOGETHER": kind.TOGETHER | {"search", "grid", "trials"},
        }
        _made[recipe] = dataclass(frozen=True, kw_only=True)(type(f"SweepOf{kind.__name__}", (Sweep, kind), added))
    return _made[recipe]


_made: dict[str, type[Sweep]] = {}
