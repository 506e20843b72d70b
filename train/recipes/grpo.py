"""Training by rewards: the model answers prompts, functions of the person score the answers, and what was better than
the other answers to its prompt becomes likelier (recipes/__init__.py says what each part is).

rows      prompts of a prepared data set, with the columns that the rewards get
rollout   the answers of a step: each node makes and scores its part, all compare, and each trains its part
held_out  prompts that are held out, answered without chance
build     a language model with its adapter, as of recipe=sft

An answer follows from the seed, the step and its number in it alone (models/drawing.py), and its advantage from the
rewards of its group, which all nodes have. So the run is the same however the answers are shared, and nobody's answers
are older than the weights that are trained on them.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from train.data.chat import Chat, load_chat
from train.data.prompts import PromptRows, open_prompts, prepare
from train.errors import BadInput
from train.models import policy
from train.models.backends import Batch, LossModule, to_tensors
from train.models.drawing import Answer, Draw, answers
from train.models.model_files import model_folder
from train.models.vllm import Server, Serving, python_of
from train.models.weights import Named
from train.plan.model.catalogue import Facts as Shape
from train.plan.model.catalogue import resolve_model
from train.plan.model.memory import cache_bytes
from train.plan.placement.fit import Decisions, setup_for
from train.plan.settings.config import GrpoConfig
from train.plan.settings.rewards import parse
from train.plan.speed.row_split import spans, split_rows
from train.recipes import model_card, sft
from train.recipes import rollout as made_rows
from train.recipes.exchange import exchange_facts, exchange_rows
from train.recipes.rollout import Facts, Made, Rollout, Row
from train.rewards.judge import Judge

if TYPE_CHECKING:
    from train.engine.loop import Run

SHOWN = 6
"""Held-out prompts whose answers an evaluation shows."""


@dataclass(frozen=True)
class Asked:
    """What this node answers."""

    rows: PromptRows
    prompts: list[int]
    """The row of each."""
    numbers: list[int]
    """The number of each within the rollout."""
    draw: Draw


class GrpoRecipe:
    def __init__(self, config: GrpoConfig) -> None:
        self.config = config
        self.at_once = config.answers_at_once
        self.end_ids: tuple[int, ...] = ()
        self.shown: list[dict[str, str]] = []
        self.has_warned = False
        self.is_a_run = False
        self.server: Server | None = None

    # -- what every recipe has ----------------------------------------------------------------------------------------

    def rows(self, config: GrpoConfig, say: Callable[[str], None]) -> tuple[PromptRows, PromptRows]:
        folder = Path(config.dataset).expanduser()
        if not (folder / "index.json").exists():
            folder = prepare(config, say)
        train, held_out = (open_prompts(folder, split, config.max_new_tokens) for split in ("train", "eval"))
        self.end_ids = train.end_ids
        return train, held_out

    def start(self, config: GrpoConfig, say: Callable[[str], None]) -> Path:
        self.is_a_run = True
        return sft.start(config, say)

    def start_for_trial(self, config: GrpoConfig) -> Path:
        return sft.start_for_trial(config)

    def shape(self, config: GrpoConfig, start: Path) -> Shape | None:
        return sft.shape(config, start)

    def build(self, config: GrpoConfig, decisions: Decisions, start: Path, device: str, row_length: int) -> LossModule:
        if self.is_a_run and config.has_server:
            self.server = Server(self.serving(config, decisions, start, device))
        built = sft.build(config, decisions, start, device, row_length)
        if self.server:
            self.server.started()  # before the micro-batch is looked for, in the memory that it leaves
        self.clipped = torch.zeros(config.rows_per_step, device=device)
        low, high = config.bounds
        how = policy.Loss(
            temperature=config.temperature, beta=config.beta, low=low, high=high, whole_answers=config.loss == "gspo"
        )
        loss_sum = partial(policy.loss_sum, how=how, clipped=self.clipped)
        return LossModule(built.model, loss_sum, built.autocast)

    def full_rows(self, count: int, length: int, vocabulary: int, device: str, seed: int = 0) -> Batch:
        batch = sft.full_rows(count, length, vocabulary, device, seed)
        ones = torch.ones(count, device=device)
        asked_again = {"base_log_p": self.config.beta > 0, "old_log_p": self.config.steps_per_rollout > 1}
        known = {name: torch.zeros(count, length, device=device) for name, is_there in asked_again.items() if is_there}
        return {**batch, "advantages": ones, "weights": ones, **known}

    def optimized(self, config: GrpoConfig, named: Named) -> list[dict[str, Any]]:
        return sft.optimized(config, named)

    def identity(self, config: GrpoConfig, start: Path) -> dict[str, str]:
        return sft.identity(config, start)

    def samples(self, run: Run) -> list[dict[str, str]]:
        """The answers of the last evaluation."""
        return self.shown

    def export(self, run: Run, folder: Path) -> None:
        sft.export(run, folder)

    def card(self, run: Run) -> str:
        config, made = cast(GrpoConfig, run.config), run.milestones
        before, after = (None if loss is None else -loss for loss in (made.base, made.newest))
        facts: dict[str, Any] = {"rows": len(run.rows), "steps": run.step, "before": before, "after": after}
        return model_card.card(config, model_card.origin_of(config), measure="held-out reward", **facts)

    # -- answers ------------------------------------------------------------------------------------------------------

    @cached_property
    def judge(self) -> Judge:
        config = self.config
        on_error: Any = config.reward_errors
        return Judge(config.rewards, config.reward_timeout_s, on_error, Path())

    @cached_property
    def names(self) -> list[str]:
        """The names of the rewards."""
        return [reward.name for reward in parse(self.config.rewards, Path())]

    @property
    def size(self) -> int:
        """Numbers that are told of an answer."""
        return made_rows.SIZE + len(self.names)

    @cached_property
    def chat(self) -> Chat:
        return load_chat(resolve_model(model_folder(self.config.model)))

    def serving(self, config: GrpoConfig, decisions: Decisions, base: Path, device: str) -> Serving:
        facts = self.shape(config, base)
        assert facts
        setup = setup_for(config, decisions.gradient_checkpointing)
        own = replace(setup, device="cpu", load_in="32bit") if device == "cpu" else setup
        return Serving(
            python=python_of(config.home_folder),
            base=str(base),
            precision=decisions.precision,
            device=device,
            lora_r=config.lora_r,
            row_length=config.max_seq_length,
            at_once=config.answers_side_by_side,
            cache_bytes=cache_bytes(facts, own),
            log=config.log_folder / f"vllm-{os.getpid()}.log",
        )

    def close(self) -> None:
        """Ends the process of the rewards, and the server."""
        if self.server:
            self.server.close()
            self.server = None
        if "judge" in vars(self):
            self.judge.close()
            del self.judge

    def rollout(self, run: Run, prompts: list[int], slices: Sequence[tuple[int, int]]) -> Rollout:
        """The answers that the next step trains on; `prompts`: its rows of the data, each for a group."""
        if self.config.steps_per_rollout > 1:
            self.clipped.zero_()
        number = run.step // self.config.steps_per_rollout
        if run.rollout and run.rollout.number == number:
            return run.rollout.again()
        started = time.perf_counter()
        first, end = slices[run.workers.of(run.world.rank)]
        asked = self.asked(run, prompts, list(range(first, end)))
        made, problem = self.attempt(run, asked)
        self.ask_again(run, made)
        made_s = time.perf_counter() - started
        own = {} if problem else dict(zip(asked.numbers, made, strict=True))
        found = self.exchange(run, own, prompts, made_s, problem)
        self.warn(run, found.told["equal_groups"])
        return replace(found, made_s=made_s, waited_s=time.perf_counter() - started - made_s)

    def asked(self, run: Run, prompts: list[int], numbers: list[int]) -> Asked:
        config = self.config
        draw = Draw(seed=config.seed, rollout=run.step, temperature=config.temperature, top_p=config.top_p)
        rows = cast(PromptRows, run.rows)
        return Asked(rows, [prompts[number // config.group] for number in numbers], numbers, draw)

    def exchange(
        self, run: Run, own: dict[int, Made], prompts: list[int], made_s: float, problem: BadInput | None
    ) -> Rollout:
        """What came of the answers of all nodes."""
        config, rows = self.config, cast(PromptRows, run.rows)
        facts = {at: self.facts_of(one) for at, one in own.items()}
        sizes = {"count": config.rows_per_step, "size": self.size}
        known = exchange_facts(run.world, facts, **sizes, seconds=made_s, problem=problem)
        each = [rows.prompt(prompts[at // config.group]) for at in range(config.rows_per_step)]
        columns = {"old": config.steps_per_rollout > 1, "base": bool(config.beta)}
        found = exchange_rows(run.world, {at: one.row for at, one in own.items()}, known, each, **columns)
        told = made_rows.told(config, known.facts, found, self.names)
        told["generate_s"] = {name: round(s, 5) for name, s in zip(run.workers.names, known.seconds, strict=True)}
        return self.whole(run, run.step // config.steps_per_rollout, known.facts, found, told=told)

    def whole(self, run: Run, number: int, facts: list[Facts], rows: list[Row], *, told: dict[str, Any]) -> Rollout:
        pad_id = cast(PromptRows, run.rows).pad_id
        found = made_rows.rollout_of(self.config, number, facts, rows, told=told, pad_id=pad_id)
        return replace(found, clipped=self.clipped if self.config.steps_per_rollout > 1 else None)

    def resumed(self, run: Run, prompts: list[int], state: dict[str, Any]) -> Rollout:
        """What `state` of a rollout was taken of."""
        rows = cast(PromptRows, run.rows)
        facts = [Facts.of(numbers) for numbers in state["facts"]]
        found = [
            Row(prompt=rows.prompt(prompts[at // self.config.group]), tokens=tokens, old_log_p=old, base_log_p=base)
            for at, (tokens, old, base) in enumerate(state["rows"])
        ]
        told = state["told"] | {"generate_s": dict.fromkeys(run.workers.names, 0.0)}
        return self.whole(run, state["number"], facts, found, told=told)

    def held_out(self, run: Run) -> tuple[float, int, dict[str, float]] | None:
        """The mean reward of answers without chance, as a loss that falls when it rises; and of each function."""
        rows, count = cast(PromptRows, run.held_out), min(len(run.held_out), run.config.eval_rows)
        if not count:
            return None
        first, end = spans(split_rows(count, [1.0] * len(run.workers.groups)))[run.workers.of(run.world.rank)]
        numbers = list(range(first, end))
        asked = Asked(rows, numbers, numbers, Draw(seed=run.config.seed, rollout=None))
        made, problem = self.attempt(run, asked)
        own = {} if problem else dict(zip(numbers, made, strict=True))
        numbers_of = {at: self.facts_of(one) for at, one in own.items()}
        facts = exchange_facts(run.world, numbers_of, count=count, size=self.size, problem=problem).facts
        self.show(rows, own)
        reward = statistics.fmean(one.reward for one in facts)
        functions = made_rows.by_function(facts, self.names)
        return -reward, count, {"reward": reward, **functions}

    def show(self, rows: PromptRows, own: dict[int, Made]) -> None:
        some = list(own)[:SHOWN]
        texts = self.texts([own[number].row.tokens for number in some])
        asked = [rows.record(number)["prompt"] for number in some]
        self.shown = [
            {"given": one if isinstance(one, str) else str(one[-1]["content"]), "wrote": text}
            for one, text in zip(asked, texts, strict=True)
        ]

    def warn(self, run: Run, equal_groups: float) -> None:
        if equal_groups == 1 and not self.has_warned:
            self.has_warned = True
            run.reporter.warn(
                run.step + 1,
                "all answers to a prompt have the same reward, for every prompt of this step: nothing is learned from "
                "it; where that stays so, use a reward with steps in between, or easier prompts",
            )

    def attempt(self, run: Run, asked: Asked) -> tuple[list[Made], BadInput | None]:
        """Answers with their rewards; what is wrong with a reward is told to all nodes first."""
        try:
            self.judge.started()  # a file that cannot be read costs no answers
            found = self.generate(run, asked)
            scored = self.score(asked, found)
        except BadInput as problem:
            return [], problem
        return [
            Made(
                row=Row(prompt=asked.rows.prompt(index), tokens=answer.tokens),
                log_p=answer.log_p,
                rewards=each,
                total=total,
            )
            for index, answer, (total, each) in zip(asked.prompts, found, scored, strict=True)
        ], None

    def generate(self, run: Run, asked: Asked) -> list[Answer]:
        """Fewer at a time after an out-of-memory."""
        if self.server:
            return self.ask_server(self.server, run, asked)
        run.module.model.eval()
        try:
            while True:
                try:
                    with run.module.autocast():
                        return self.in_parts(run, asked)
                except torch.OutOfMemoryError:
                    if self.at_once == 1:
                        raise
                    self.at_once //= 2
                torch.cuda.empty_cache()
                run.reporter.warn(run.step, f"{run.world.node}: out of memory, now {self.at_once} answers at a time")
        finally:
            run.module.model.train()

    def ask_server(self, server: Server, run: Run, asked: Asked) -> list[Answer]:
        server.take(run.module.model, run.step)
        prompts = [asked.rows.prompt(index) for index in asked.prompts]
        how: dict[str, Any] = {"end_ids": asked.rows.end_ids, "most": self.config.max_new_tokens}
        return server.answers(prompts, asked.numbers, asked.draw, **how)

    def in_parts(self, run: Run, asked: Asked) -> list[Answer]:
        found: list[Answer] = []
        how: dict[str, Any] = {"end_ids": asked.rows.end_ids, "most": self.config.max_new_tokens}
        for part in parts(len(asked.prompts), self.at_once):
            prompts = to_tensors(asked.rows.batch([asked.prompts[at] for at in part]), run.device)
            found += answers(run.module.model, prompts, [asked.numbers[at] for at in part], asked.draw, **how)
        return found

    def score(self, asked: Asked, found: Sequence[Answer]) -> list[tuple[float, list[float]]]:
        """What the rewards of each answer are together, and each of them."""
        if not found:
            return []
        records = [asked.rows.record(index) for index in asked.prompts]
        names = dict.fromkeys(name for record in records for name in record["columns"])
        columns = {name: [record["columns"].get(name) for record in records] for name in names}
        prompts, texts = [record["prompt"] for record in records], self.texts([answer.tokens for answer in found])
        answered = [as_answered(prompt, text) for prompt, text in zip(prompts, texts, strict=True)]
        scored = self.judge.score(prompts, answered, columns)
        each = [list(map(as_number, scored.by_function[name])) for name in self.names]
        return [(total, [values[at] for values in each]) for at, total in enumerate(scored.total)]

    def texts(self, found: Sequence[list[int]]) -> list[str]:
        decode = self.chat.tokenizer.decode
        return [str(decode(tokens, skip_special_tokens=True)) for tokens in found]

    def ask_again(self, run: Run, made: list[Made]) -> None:
        """What the model says to each token with all of the answer before it, and what the base does, without the
        adapter. Not as it was drawn: token by token, in half precision, it says something else by a little."""
        if self.config.steps_per_rollout > 1:
            self.ask(run, made, "old_log_p")
        if self.config.beta:
            model: Any = run.module.model
            with model.disable_adapter():
                self.ask(run, made, "base_log_p")

    def ask(self, run: Run, made: list[Made], name: str) -> None:
        for some in parts(len(made), run.micro_batch):
            part = [made[at].row for at in some]
            batch = to_tensors(made_rows.filled(part, 0), run.device)
            with run.module.autocast():
                values = policy.known_log_p(run.module.model, batch, self.config.temperature).cpu()
            for row, one in enumerate(part):
                start = len(one.prompt)
                setattr(one, name, values[row, start : start + len(one.tokens)].tolist())

    def facts_of(self, made: Made) -> Facts:
        tokens, base = made.row.tokens, made.row.base_log_p
        mine = torch.tensor(made.log_p, dtype=torch.float64)
        apart = policy.divergence(mine, torch.tensor(base, dtype=torch.float64)) if base else mine * 0
        return Facts(
            reward=made.total,
            tokens=len(tokens),
            cut=len(tokens) == self.config.max_new_tokens and tokens[-1] not in self.end_ids,
            divergence=float(apart.sum()),
            by_function=tuple(made.rewards),
        )


def parts(count: int, size: int) -> list[range]:
    return [range(first, min(first + size, count)) for first in range(0, count, size)]


def as_answered(prompt: Any, text: str) -> Any:
    """An answer as TRL gives it to a reward: to turns a turn."""
    return text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]


def as_number(value: float | None) -> float:
    """None, where a function does not apply, travels as what is no number."""
    return math.nan if value is None else value
