"""The settings of a run that asks a model and trains nothing, beside those of fine-tuning: what it is asked for comes
in pieces, which each machine takes by itself (train/pool)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from train.errors import BadInput
from train.plan.model.verdict import Verdict
from train.plan.settings.every_run import Holding, option
from train.plan.settings.sft import SftConfig


@dataclass(frozen=True, kw_only=True)
class OnlyAsksConfig(SftConfig):
    IN_PIECES: ClassVar[bool] = True

    eval_fraction: float = option(0.0, "agree", "share held out: nothing, all of the data is asked")
    pack: bool = option(False, "agree", "several samples in a row; never here")
    backend: str = option("hf", "agree", "transformers + peft", ("hf",))
    weights: str = option("gpu", "node", "where the base is: on the card", ("gpu",))
    pipes: str = option("off", "agree", "which nodes hold the base together: none", ("off",))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method == "full":
            raise BadInput("method: full trains all weights, and here nothing is trained", fix="leave method out")
        if self.eval_fraction:
            raise BadInput("eval_fraction: all of the data is asked, and none held out", fix="leave it out")

    @property
    def holding(self) -> Holding:
        return Holding(backend=self.backend, load_in=self.load_in, full=False, trains=False)

    @property
    def answers_side_by_side(self) -> int:
        return int(getattr(self, self.SIDE_BY_SIDE))

    def proven(self, verdict: Verdict) -> Self:
        """What a miniature has shown of training does not matter."""
        return self
