"""The settings of training by preferences (recipe=preference), beside those of fine-tuning: of two answers to a prompt
the better one becomes likelier than the other; or of single answers those that are called good; or a head learns which
is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from train.errors import BadInput
from train.plan.settings.every_run import flags, option
from train.plan.settings.sft import SftConfig, data_words, refuse_others, require_asking

LOSSES = ("dpo", "hinge", "ipo", "orpo", "simpo", "kto", "reward")
WITH_REFERENCE = ("dpo", "hinge", "ipo", "kto")
"""Losses that hold the model near its base: they compare with what the base says of the same answers."""
OF_A_TOKEN = ("orpo", "simpo")
"""Losses that compare the mean log-probability of an answer's tokens, not their sum."""
SMOOTHED = ("dpo", "simpo")
BETAS = {"simpo": 2.0, "reward": 1.0}
BETA = 0.1
GAMMA = 1.0
RATES = {"lora": 2e-5, "full": 1e-6}
"""Peak learning rates: a tenth of fine-tuning's, as both answers move at once and a long step forgets how to write."""
SCORING_RATE = 1e-4
"""A reward model may learn faster: it need not write."""
NOT_HERE = {
    "pack": ((False,), "a row is a pair of answers, each behind its prompt"),
    "train_on": (("answers",), "what is compared are answers"),
    "pipes": (("off",), "a pair is compared where both of its answers end, with the base beside the adapter"),
    "backend": (("hf",), "the log-probability of a whole answer is taken by transformers"),
    "lora_dropout": ((0.0,), "an answer is compared with what the base says of it, without chance"),
    "neftune_alpha": ((0.0,), "an answer is compared with what the base says of it, without chance"),
    "sync": (("auto", "ddp", "flat"), "a step's loss is the mean over the pairs of all machines"),
}
"""Settings of others that mean less here, with the values that they have and why."""


@dataclass(frozen=True, kw_only=True)
class PreferenceConfig(SftConfig):
    PREPARES: ClassVar[str] = "train.recipes.preference.rows"
    COUNTED: ClassVar[tuple[str, ...]] = (*SftConfig.COUNTED, "loss")
    TOGETHER: ClassVar[frozenset[str]] = frozenset(
        {"loss", "beta", "label_smoothing", "simpo_gamma", "center_rewards_coefficient", "method"}
    )

    recipe: str = option("preference", "math", "sft: fine-tune; preference: prefer one answer", ("preference",))
    loss: str = option("dpo", "math", "dpo|hinge|ipo|orpo|simpo|reward, of pairs; kto, of single answers", LOSSES)
    beta: float = option(0.0, "math", "how much a difference counts; 0: 0.1, or 2 with loss=simpo")
    label_smoothing: float = option(0.0, "math", "share of the pairs taken to be the wrong way round")
    simpo_gamma: float = option(GAMMA, "math", "by how much loss=simpo wants the better answer ahead")
    center_rewards_coefficient: float = option(0.0, "math", "how strongly loss=reward holds its scores around 0")

    learning_rate: float = option(
        0.0, "math", "peak learning rate; 0: 2e-5, 1e-4 where loss=reward, or 1e-6 where method=full"
    )
    max_seq_length: int = option(512, "agree", "tokens of a prompt and one answer together, at most")
    pack: bool = option(False, "agree", "several samples in a row; never here")
    backend: str = option("hf", "agree", "transformers + peft", ("hf",))
    pipes: str = option("off", "agree", "which nodes hold the base together: none", ("off",))

    def __post_init__(self) -> None:
        refuse_others(self, "preference", NOT_HERE)
        object.__setattr__(self, "beta", self.beta or BETAS.get(self.loss, BETA))
        rates = RATES | ({"lora": SCORING_RATE} if self.scores else {})
        object.__setattr__(self, "learning_rate", self.learning_rate or rates.get(self.method, 0.0))
        super().__post_init__()
        require_asking(self)
        self.check_numbers()
        if self.method == "full" and self.scores:
            fix = "use method=lora"
            raise BadInput("loss: a reward model is an adapter with a head, and method=full has no adapter", fix=fix)
        if self.method == "full" and self.compares:
            raise BadInput(
                f"loss: with method=full the base is what is trained, and {self.loss} has nothing left to compare with",
                fix=f"use loss={' or '.join(OF_A_TOKEN)}, or method=lora",
            )

    def check_numbers(self) -> None:
        if self.beta < 0 or self.simpo_gamma < 0:
            raise BadInput("beta must be above 0, and simpo_gamma not below")
        if not 0 <= self.label_smoothing < 0.5:
            raise BadInput(f"label_smoothing: {self.label_smoothing} is not from 0 to below 0.5")
        if self.label_smoothing and self.loss not in SMOOTHED:
            fix = f"leave it out, or use loss={' or '.join(SMOOTHED)}"
            raise BadInput(f"label_smoothing: loss={self.loss} has none", fix=fix)
        if self.simpo_gamma != GAMMA and self.loss != "simpo":
            raise BadInput(f"simpo_gamma: loss={self.loss} has none", fix="leave it out, or use loss=simpo")
        if self.scores and self.beta != BETAS["reward"]:
            raise BadInput("beta: loss=reward has none: its margin is the difference of two scores", fix="leave it out")
        if self.center_rewards_coefficient < 0:
            raise BadInput(f"center_rewards_coefficient: {self.center_rewards_coefficient} is below 0")
        if self.center_rewards_coefficient and not self.scores:
            fix = "leave it out, or use loss=reward"
            raise BadInput(f"center_rewards_coefficient: loss={self.loss} has none", fix=fix)

    @property
    def scores(self) -> bool:
        return self.loss == "reward"

    @property
    def compares(self) -> bool:
        """Whether the base's log-probabilities are asked for."""
        return self.loss in WITH_REFERENCE

    @property
    def paired(self) -> bool:
        """Whether a row is a pair of answers; else it is one answer with a label."""
        return self.loss != "kto"

    @property
    def lines_of_row(self) -> int:
        return 2 if self.paired else 1

    @property
    def row_words(self) -> str:
        what = "pairs of answers" if self.paired else "answers"
        return f"{self.rows_per_step} {what} of up to {self.max_seq_length} tokens with their prompt"

    @property
    def step_words(self) -> tuple[int, str]:
        return self.rows_per_step, "pairs" if self.paired else "answers"

    @property
    def about(self) -> str:
        return f"{self.loss}, {super().about}"

    @property
    def rate_reason(self) -> str:
        return ""

    def prepare_words(self, model_folder: str, file: str = "") -> list[str]:
        words = flags(self, "recipe", "loss", "max_seq_length", "eval_fraction", "max_bad")
        return [f"--model={model_folder}", *words, *data_words(self)]
