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
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import torch

from train.data.chat import Chat, load_chat
from train.data.parts import looked_at
from train.data.prompts import PromptRows, open_prompts, prepare
from train.errors import BadInput, PeerFailed
from train.models import policy
from train.models.backends import Batch, LossModule, to_tensors
from train.models.drawing import Answer, Draw, answers
from train.models.model_files import model_folder
from train.models.weights import Named
from train.plan.model import data_sets
from train.plan.model.catalogue import Facts as Shape
from train.plan.model.catalogue import resolve_model
from train.plan.placement.fit import Decisions
from train.plan.settings.config import GrpoConfig
from train.plan.settings.rewards import parse
from train.plan.speed.row_split import spans, split_rows
from train.recipes import model_card, sft
from train.recipes import rollout as made_rows
from train.recipes.rollout import Facts, Made, Rollout, crc_of
from train.rewards.judge import Judge
from train.runlog.events import ON_DATA

if TYPE_CHECKING:
    from train.engine.loop import Run
    from train.parallel.process_group import World

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

    # -- what every recipe has ----------------------------------------------------------------------------------------

    def rows(self, config: GrpoConfig, say: Callable[[str], None]) -> tuple[PromptRows, PromptRows]:
        folder = Path(config.dataset).expanduser()
        if not data_sets.is_here(f"{folder}/index.json"):
            folder = prepare(config, say)
        train, held_out = (open_prompts(folder, split, config.max_new_tokens) for split in ("train", "eval"))
        self.end_ids = train.end_ids
        return train, held_out

    def start(self, config: GrpoConfig, say: Callable[[str], None]) -> Path:
        return sft.start(config, say)

    def start_for_trial(self, config: GrpoConfig) -> Path:
        return sft.start_for_trial(config)

    def shape(self, config: GrpoConfig, start: Path) -> Shape | None:
        return sft.shape(config, start)

    def build(self, config: GrpoConfig, decisions: Decisions, start: Path, device: str, row_length: int) -> LossModule:
        built = sft.build(config, decisions, start, device, row_length)
        loss_sum = partial(policy.loss_sum, temperature=config.temperature, beta=config.beta)
        return LossModule(built.model, loss_sum, built.autocast)

    def full_rows(self, count: int, length: int, vocabulary: int, device: str, seed: int = 0) -> Batch:
        batch = sft.full_rows(count, length, vocabulary, device, seed)
        ones = torch.ones(count, device=device)
        base = {"base_log_p": torch.zeros(count, length, device=device)} if self.config.beta else {}
        return {**batch, "advantages": ones, "weights": ones, **base}

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

    @cached_property
    def chat(self) -> Chat:
        return load_chat(resolve_model(model_folder(self.config.model)))

    def close(self) -> None:
        """Ends the process of the rewards."""
        if "judge" in vars(self):
            self.judge.close()
            del self.judge

    def rollout(self, run: Run, prompts: list[int], slices: Sequence[tuple[int, int]]) -> Rollout:
        """The answers of the next step; `prompts`: its rows of the data, each for a group."""
        config, started = self.config, time.perf_counter()
        first, end = slices[run.workers.of(run.world.rank)]
        numbers = list(range(first, end))
        draw = Draw(seed=config.seed, rollout=run.step, temperature=config.temperature, top_p=config.top_p)
        rows = cast(PromptRows, run.rows)
        asked = Asked(rows, [prompts[number // config.group] for number in numbers], numbers, draw)
        made, problem = self.attempt(run, asked)
        if config.beta and made:
            self.ask_base(run, made)
        made_s = time.perf_counter() - started
        own = {} if problem else dict(zip(numbers, made, strict=True))
        facts, seconds = self.exchange(run.world, own, config.rows_per_step, made_s, problem)
        targets = made_rows.trained_tokens(config, facts)
        rewards = [one.reward for one in facts]
        told = made_rows.told(config, facts, self.names)
        told["generate_s"] = {name: round(s, 5) for name, s in zip(run.workers.names, seconds, strict=True)}
        self.warn(run, told["equal_groups"])
        return Rollout(
            facts=facts,
            targets=targets,
            advantages=made_rows.advantages(rewards, config.group, config.scale_rewards),
            weights=made_rows.weights(config, targets),
            own=own,
            told=told,
            pad_id=rows.pad_id,
            made_s=made_s,
            waited_s=time.perf_counter() - started - made_s,
        )

    def held_out(self, run: Run) -> tuple[float, int, dict[str, float]] | None:
        """The mean reward of answers without chance, as a loss that falls when it rises; and of each function."""
        rows, some = cast(PromptRows, run.held_out), looked_at(run.held_out, run.config.eval_rows)
        whole = [(name, number) for name, numbers in some for number in numbers]
        if not (count := len(whole)):
            return None
        first, end = spans(split_rows(count, [1.0] * len(run.workers.groups)))[run.workers.of(run.world.rank)]
        numbers = [number for _, number in whole[first:end]]
        asked = Asked(rows, numbers, numbers, Draw(seed=run.config.seed, rollout=None))
        made, problem = self.attempt(run, asked)
        own = {} if problem else dict(zip(range(first, end), made, strict=True))
        facts, _ = self.exchange(run.world, own, count, 0.0, problem)
        self.show(rows, dict(zip(numbers, made, strict=False)))
        reward = statistics.fmean(one.reward for one in facts)
        functions = made_rows.by_function(facts, self.names)
        by_data: dict[str, list[float]] = {}
        for (name, _), one in zip(whole, facts, strict=True):
            by_data.setdefault(f"{ON_DATA}{name}", []).append(one.reward)
        each = {name: statistics.fmean(values) for name, values in by_data.items() if rows.parts}
        return -reward, count, {"reward": reward, **functions, **each}

    def show(self, rows: PromptRows, own: dict[int, Made]) -> None:
        some = list(own)[:SHOWN]
        texts = self.texts([own[number].answer for number in some])
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
            Made(prompt=asked.rows.prompt(index), answer=answer, rewards=each, total=total)
            for index, answer, (total, each) in zip(asked.prompts, found, scored, strict=True)
        ], None

    def generate(self, run: Run, asked: Asked) -> list[Answer]:
        """Fewer at a time after an out-of-memory."""
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
        prompts = [record["prompt"] for record in records]
        answered = [as_answered(prompt, text) for prompt, text in zip(prompts, self.texts(found), strict=True)]
        scored = self.judge.score(prompts, answered, columns)
        each = [list(map(as_number, scored.by_function[name])) for name in self.names]
        return [(total, [values[at] for values in each]) for at, total in enumerate(scored.total)]

    def texts(self, found: Sequence[Answer]) -> list[str]:
        decode = self.chat.tokenizer.decode
        return [str(decode(answer.tokens, skip_special_tokens=True)) for answer in found]

    def ask_base(self, run: Run, made: list[Made]) -> None:
        """What the base, without the adapter, would have said to each token."""
        model: Any = run.module.model
        for some in parts(len(made), run.micro_batch):
            part = [made[at] for at in some]
            shape = (len(part), max(len(one.prompt) + len(one.answer.tokens) for one in part))
            batch = to_tensors(made_rows.filled(part, shape, 0), run.device)
            with model.disable_adapter(), run.module.autocast():
                values = policy.log_p_of_labels(model, batch, temperature=self.config.temperature).cpu()
            for row, one in enumerate(part):
                start = len(one.prompt)
                one.base_log_p = values[row, start : start + len(one.answer.tokens)].tolist()

    def exchange(
        self, world: World, made: dict[int, Made], count: int, seconds: float, problem: BadInput | None
    ) -> tuple[list[Facts], list[float]]:
        """What all nodes know of all answers, in their order, and the seconds of each node."""
        size = made_rows.SIZE + len(self.names)
        table = torch.zeros(count, size, dtype=torch.float64)
        for number, one in made.items():
            table[number] = torch.tensor(self.facts_of(one).numbers(), dtype=torch.float64)
        parts = world.numbers([float(problem is not None), seconds, *table.flatten().tolist()])
        if any(part[0] for part in parts):
            raise_for_all(world, problem)
        whole = sum(torch.tensor(part[2:], dtype=torch.float64) for part in parts)
        lines = cast(torch.Tensor, whole).view(-1, size).tolist()
        return [Facts.of(line) for line in lines], [part[1] for part in parts]

    def facts_of(self, made: Made) -> Facts:
        tokens, mine = made.answer.tokens, torch.tensor(made.answer.log_p, dtype=torch.float64)
        apart = (
            policy.divergence(mine, torch.tensor(made.base_log_p, dtype=torch.float64)) if made.base_log_p else mine * 0
        )
        return Facts(
            reward=made.total,
            tokens=len(tokens),
            cut=len(tokens) == self.config.max_new_tokens and tokens[-1] not in self.end_ids,
            crc=crc_of(tokens),
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


def raise_for_all(world: World, problem: BadInput | None) -> NoReturn:
    """Who has the problem says it in its own words; for the others it is a peer's."""
    told = world.gather([world.node, str(problem).splitlines()[0]] if problem else None)
    if problem:
        raise problem
    node, what = next(one for one in told if one)
    raise PeerFailed(f"{node}: {what}")
