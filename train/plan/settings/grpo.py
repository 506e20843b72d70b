"""The settings of training by rewards (recipe=grpo), beside those of fine-tuning: the model answers prompts, functions
of the person score the answers, and what was better than its group becomes likelier."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from train.errors import BadInput
from train.plan.model.verdict import Verdict
from train.plan.settings.every_run import at_least, flags, option
from train.plan.settings.rewards import file_of, parse, rewards_hash, with_file
from train.plan.settings.sft import (
    COLDEST,
    SftConfig,
    data_words,
    refuse_others,
    require_asking,
    require_room_for_prompt,
)

RATES = {"lora": 1e-4, "full": 2e-6}
"""Peak learning rates: a reward says less than an answer to imitate, and a long step away from the base loses it."""
ENGINES = ("transformers", "vllm")
LARGEST_FOR_VLLM = 512
"""The largest lora_r that a server of vLLM takes."""
LOSSES = ("dapo", "grpo", "dr_grpo", "gspo")
BOUNDS = {"gspo": (3e-4, 4e-4)}
"""Loss → how far below and above 1 a ratio may go: that of whole answers, as gspo takes it, stays far nearer to 1."""
USUAL_BOUNDS = (0.2, 0.2)
NOT_HERE = {
    "pack": ((False,), "a prompt is a row of its own"),
    "train_on": (("answers",), "what is trained on are the model's own answers"),
    "weights": (("gpu",), "each token of an answer needs the whole base"),
    "pipes": (("off",), "each token of an answer needs the whole base"),
    "lora_dropout": ((0.0,), "an answer is trained by the model that has made it"),
    "neftune_alpha": ((0.0,), "an answer is trained by the model that has made it"),
    "backend": (("hf",), "the answers are made in the training process, by transformers"),
    "sync": (("flat",), "all answers of a step are compared with one another, before one exchange of gradients"),
}
"""Settings of others that mean nothing here, with the values that they may have and why."""


@dataclass(frozen=True, kw_only=True)
class GrpoConfig(SftConfig):
    PREPARES: ClassVar[str] = "train.recipes.grpo.rows"
    REQUIRED: ClassVar[frozenset[str]] = frozenset({"model", "dataset", "rewards"})
    COUNTED: ClassVar[tuple[str, ...]] = (
        *SftConfig.COUNTED, "group", "max_new_tokens", "beta", "answers_at_once", "engine"
    )  # fmt: skip
    TOGETHER: ClassVar[frozenset[str]] = frozenset(
        {"rows_per_step", "group", "max_seq_length", "max_new_tokens", "beta", "method", "rewards", "rewards_hash"}
        | {"steps_per_rollout", "epsilon", "epsilon_high"}
    )

    recipe: str = option("grpo", "math", "sft: fine-tune; grpo: train by rewards", ("grpo",))
    rewards: str = option("", "node", "what scores an answer: ./rewards.py, exact, number, …, with commas")
    rewards_hash: str = option("", "math", "what the rewards are, as a SHA-256; found automatically")
    reward_timeout_s: float = option(30.0, "agree", "seconds that the rewards of a step may take on a node")
    reward_errors: str = option(
        "stop", "math", "stop|zero: what a reward that fails does to the run, or its answer", ("stop", "zero")
    )

    rows_per_step: int = option(32, "math", "answers of one optimizer step, over all nodes together")
    group: int = option(8, "math", "answers to one prompt, which are compared with one another")
    max_new_tokens: int = option(128, "math", "tokens of an answer, at most")
    temperature: float = option(1.0, "math", "what scores are divided by before an answer is drawn: above 1 is bolder")
    top_p: float = option(1.0, "math", "draw from the likeliest tokens that have this probability together")

    loss: str = option("dapo", "math", "dapo|grpo|dr_grpo|gspo: how the tokens of a step are weighed", LOSSES)
    steps_per_rollout: int = option(1, "math", "optimizer steps on the same answers")
    epsilon: float = option(0.0, "math", "how much less likely than it was these may make a token; 0: 0.2, gspo 0.0003")
    epsilon_high: float = option(0.0, "math", "how much likelier they may make it; 0: as epsilon, gspo 0.0004")
    scale_rewards: str = option(
        "group", "math", "group|batch|none: by whose spread a reward is divided", ("group", "batch", "none")
    )
    beta: float = option(0.0, "math", "how strongly the model is held near its base (KL); 0: not at all")
    mask_overlong: bool = option(False, "math", "do not train on answers that reached max_new_tokens")
    answers_at_once: int = option(32, "node", "answers that a machine makes side by side, at most; memory counts them")
    engine: str = option(
        "transformers", "math", "transformers|vllm: what makes the answers, in this process or beside it", ENGINES
    )

    learning_rate: float = option(0.0, "math", "peak learning rate; 0: 1e-4, or 2e-6 where method=full")
    max_seq_length: int = option(512, "agree", "tokens of a prompt and its answer together, at most")
    pack: bool = option(False, "agree", "several samples in a row; never here")
    backend: str = option("hf", "agree", "transformers + peft", ("hf",))
    weights: str = option("gpu", "node", "where the frozen base is: on the card", ("gpu",))
    pipes: str = option("off", "agree", "which nodes hold the base together: none", ("off",))
    sync: str = option("flat", "agree", "how gradients are combined: in one exchange", ("flat",))

    def __post_init__(self) -> None:
        refuse_others(self, "grpo", NOT_HERE)
        self._fix_rewards()
        if self.engine == "vllm":
            self._go_with_vllm()
        object.__setattr__(self, "learning_rate", self.learning_rate or RATES.get(self.method, 0.0))
        super().__post_init__()
        require_asking(self)
        self._check_reuse()
        at_least(self, "group", 2)
        at_least(self, "max_new_tokens", 1)
        at_least(self, "answers_at_once", 1)
        at_least(self, "beta", 0)
        if self.rows_per_step % self.group:
            near = max(1, round(self.rows_per_step / self.group)) * self.group
            raise BadInput(
                f"rows_per_step: {self.rows_per_step} answers are no whole number of groups of {self.group}",
                fix=f"rows_per_step={near}, or another group",
            )
        require_room_for_prompt(self.max_seq_length, self.max_new_tokens)
        at_least(self, "temperature", COLDEST)
        if not 0 < self.top_p <= 1 or not self.reward_timeout_s > 0:
            raise BadInput("reward_timeout_s must be above 0, and top_p above 0 and at most 1")
        if self.beta and self.method == "full":
            fix = "leave beta out, or use method=lora"
            raise BadInput(
                "beta: with method=full the base is what is trained, and nothing is left to compare with", fix=fix
            )

    def _go_with_vllm(self) -> None:
        """Its server holds the base as it is, so it is held so here, and takes an adapter alone."""
        fix = "use engine=transformers"
        if self.method == "full":
            raise BadInput(
                "engine: vLLM is given the adapter of each step, and with method=full there is none", fix=fix
            )
        if self.load_in not in ("auto", "16bit"):
            what = f"engine: vLLM answers by the base in 16 bit, and training would be by the one in {self.load_in}"
            raise BadInput(what, fix=f"use load_in=16bit, or {fix.removeprefix('use ')}")
        if self.dora or self.lora_init != "default":
            raise BadInput(f"engine: vLLM takes plain LoRA, without {'dora' if self.dora else 'lora_init'}", fix=fix)
        if self.lora_r > LARGEST_FOR_VLLM:
            raise BadInput(f"lora_r: vLLM takes adapters up to {LARGEST_FOR_VLLM}", fix=f"a smaller one, or {fix}")
        object.__setattr__(self, "load_in", "16bit")

    def _check_reuse(self) -> None:
        """Checks what belongs to several steps on the same answers."""
        at_least(self, "steps_per_rollout", 1)
        at_least(self, "epsilon", 0)
        at_least(self, "epsilon_high", 0)
        given = [name for name in ("epsilon", "epsilon_high") if getattr(self, name)]
        if given and self.steps_per_rollout == 1:
            raise BadInput(
                f"{given[0]}: with one step on the same answers the model is the one that made them, and nothing is "
                "bounded",
                fix=f"steps_per_rollout=2, or leave {given[0]} out",
            )
        if self.epsilon >= 1:
            raise BadInput(f"epsilon: {self.epsilon:g} bounds nothing, as no ratio is below 0", fix="epsilon=0.2")

    @property
    def bounds(self) -> tuple[float, float]:
        """How far below and above 1 a ratio to the model that made the answers may go."""
        low, high = BOUNDS.get(self.loss, USUAL_BOUNDS)
        return self.epsilon or low, self.epsilon_high or self.epsilon or high

    def _fix_rewards(self) -> None:
        """Names their file by where it is, and all of them by what they are."""
        file = file_of(self.rewards)
        whole = with_file(self.rewards, str(Path(file).expanduser().resolve())) if file else self.rewards.strip()
        sha256 = rewards_hash(parse(whole, Path())) if whole else ""
        if whole and self.rewards_hash not in ("", sha256):
            raise BadInput(
                "the rewards are not those that the run was launched with: others make another run",
                f"rewards: {whole}",
                "put the old ones back, or begin a new run with another name",
            )
        object.__setattr__(self, "rewards", whole)
        object.__setattr__(self, "rewards_hash", sha256 or self.rewards_hash)

    @property
    def rewards_file(self) -> Path | None:
        """The file of one's own among the rewards."""
        file = file_of(self.rewards)
        return Path(file) if file else None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of a prompt, at most."""
        return self.max_seq_length - self.max_new_tokens

    @property
    def drawn_per_step(self) -> int:
        return self.rows_per_step // self.group

    @property
    def steps_per_draw(self) -> int:
        return self.steps_per_rollout

    @property
    def answers_side_by_side(self) -> int:
        return min(self.answers_at_once, self.rows_per_step)

    @property
    def has_server(self) -> bool:
        return self.engine == "vllm"

    @property
    def row_words(self) -> str:
        prompts, steps = self.drawn_per_step, self.steps_per_rollout
        answers = f"{prompts} prompt{'s' * (prompts > 1)} × {self.group} answers of up to {self.max_new_tokens} tokens"
        return answers + f", for {steps} steps" * (steps > 1)

    @property
    def step_words(self) -> tuple[int, str]:
        return self.rows_per_step, "answers"

    @property
    def rate_reason(self) -> str:
        return ""

    def proven(self, verdict: Verdict) -> Self:
        self.refuse_unproven(verdict)
        return self

    @property
    def file_to_bring(self) -> tuple[str, Path] | None:
        return ("rewards", self.rewards_file) if self.rewards_file else None

    def prepare_words(self, model_folder: str, file: str = "") -> list[str]:
        words = flags(self, "recipe", "max_seq_length", "max_new_tokens", "eval_fraction", "max_bad")
        rewards = with_file(self.rewards, file) if file else self.rewards
        return [f"--model={model_folder}", *words, *data_words(self), f"--rewards={rewards}"]
