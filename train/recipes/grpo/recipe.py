"""Training by rewards: the model answers prompts, functions of the person score the answers, and what was better than
the other answers to its prompt becomes likelier (recipes/__init__.py says what each part is).

rows          prompts of a prepared data set, with the columns that the rewards get
prepare_step  the answers of a step: each node makes and scores its part, all compare, and each trains its part
held_out      prompts that are held out, answered without chance
build         a language model with its adapter, as of recipe=sft

An answer follows from the seed, the step and its number in it alone (models/sample_tokens.py), and its advantage from
the rewards of its group, which all nodes have. So the run is the same however the answers are shared, and
nobody's answers are older than the weights that are trained on them.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from train.data.mix_data_sets import looked_at
from train.data.to_tokens import Chat, load_chat
from train.errors import BadInput, PeerFailed
from train.models.backends import Batch, LossModule, to_tensors
from train.models.label_log_p import placed_log_p
from train.models.model_files import model_folder
from train.models.sample_tokens import Answer, Draw
from train.models.vllm import Server, Serving, python_of
from train.plan.model.catalogue import resolve_model
from train.plan.model.memory import cache_bytes
from train.plan.placement.decisions import Decisions
from train.plan.placement.fit import setup_for
from train.plan.settings.read_settings import GrpoConfig
from train.plan.settings.rewards import parse
from train.plan.speed.row_split import parts
from train.recipes import model_card, prepared
from train.recipes.grpo import losses as policy
from train.recipes.grpo import rollout as made_rows
from train.recipes.grpo.exchange import Effort, Known, exchange_facts, exchange_rows
from train.recipes.grpo.generate import Asked, Generator, ServedGenerator, seconds_of_an_answer
from train.recipes.grpo.hand_out import HandOut
from train.recipes.grpo.rollout import Facts, KeptRollout, Made, Rollout, Row
from train.recipes.grpo.rows import PromptRows, open_prompts
from train.recipes.sft import recipe as sft
from train.rewards.judge import Judge
from train.runlog import event_types
from train.runlog.events import ON_DATA

if TYPE_CHECKING:
    from train.engine.loop import Run

SHOWN, FEW = 6, 4
"""Held-out prompts whose answers an evaluation shows."""
EQUAL = (
    "all answers to a prompt have the same reward, for every prompt of this step: nothing is learned from it; where "
    "that stays so, use a reward with steps in between, or easier prompts"
)
ENDLESS = (
    "no answer of this step came to an end within max_new_tokens={}: where that stays so, raise it, or let a reward "
    "ask for shorter ones"
)


class GrpoRecipe:
    def __init__(self, config: GrpoConfig) -> None:
        self.config = config
        self.generator = Generator(config.max_new_tokens, config.answers_at_once)
        self.speeds: dict[str, float] = {}
        """Node → the tokens that it draws in a second."""
        self.end_ids: tuple[int, ...] = ()
        self.shown: list[dict[str, str]] = []
        self.is_a_run = self.is_measured = False
        self.server: Server | None = None
        self.warned: set[str] = set()

    # -- what every recipe has ----------------------------------------------------------------------------------------

    def rows(self, config: GrpoConfig, say: Callable[[str], None]) -> tuple[PromptRows, PromptRows]:
        folder = prepared(config, say)
        train, held_out = (open_prompts(folder, split, config.max_new_tokens) for split in ("train", "eval"))
        self.end_ids = train.end_ids
        return train, held_out

    def start(self, config: GrpoConfig, say: Callable[[str], None]) -> Path:
        self.is_a_run = True
        return sft.start(config, say)

    def start_for_trial(self, config: GrpoConfig) -> Path:
        self.is_measured = True
        return sft.start_for_trial(config)

    shape, identity = staticmethod(sft.shape), staticmethod(sft.identity)
    optimized, export = staticmethod(sft.optimized), staticmethod(sft.export)

    def build(self, config: GrpoConfig, decisions: Decisions, start: Path, device: str, row_length: int) -> LossModule:
        if (self.is_a_run or self.is_measured) and config.has_server:
            self.server = Server(self.serving(config, decisions, start, device))
            self.generator = ServedGenerator(self.server, config.max_new_tokens, config.answers_at_once)
        built = sft.build(config, decisions, start, device, row_length)
        low, high = config.bounds
        how = policy.Loss(
            temperature=config.temperature, beta=config.beta, low=low, high=high, whole_answers=config.loss == "gspo"
        )
        loss_sum, measured = (partial(one, how=how) for one in (policy.loss_sum, policy.measured))
        again = config.steps_per_rollout > 1
        return LossModule(built.model, loss_sum, built.autocast, policy.METRICS, measured, in_steps=again)

    def full_rows(self, count: int, length: int, vocabulary: int, device: str, seed: int = 0) -> Batch:
        batch = sft.full_rows(count, length, vocabulary, device, seed)
        ones = torch.ones(count, device=device)
        asked_again = {"base_log_p": self.config.beta > 0, "old_log_p": self.config.steps_per_rollout > 1}
        known = {name: torch.zeros(count, length, device=device) for name, is_there in asked_again.items() if is_there}
        return {**batch, "advantages": ones, "weights": ones, **known}

    def samples(self, run: Run) -> list[dict[str, str]]:
        """The answers of the last evaluation."""
        return self.shown

    def card(self, run: Run) -> str:
        losses = run.milestones.base, run.milestones.newest
        before, after = (None if loss is None else -loss for loss in losses)
        return model_card.card(run, before, after, measure="held-out reward")

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
            log=(config.log_folder if self.is_a_run else config.home_folder / "vllm") / f"vllm-{os.getpid()}.log",
        )

    def ready(self, tell: Callable[[str], None]) -> None:
        """The server is up before the micro-batch is looked for, in the memory that it leaves."""
        if self.server:
            tell("vLLM loads the model")
            self.server.started()
            tell("vLLM is ready, other nodes are not yet")

    def close(self) -> None:
        """Ends the process of the rewards, and the server."""
        if self.server:
            self.server.close()
            self.server = None
        if "judge" in vars(self):
            self.judge.close()
            del self.judge

    def prepare_step(self, run: Run, prompts: list[int], slices: Sequence[tuple[int, int]]) -> Rollout:
        """The answers that the next step trains on; `prompts`: its rows of the data, each for a group. Who makes them
        follows from no share."""
        number = run.step // self.config.steps_per_rollout
        if isinstance(run.step_rows, Rollout) and run.step_rows.number == number:
            return run.step_rows.again(run.workers.names)
        config, started = self.config, time.perf_counter()
        draw = Draw(seed=config.seed, rollout=run.step, temperature=config.temperature, top_p=config.top_p)
        of_each_answer = [index for index in prompts for _ in range(config.group)]
        asked = Asked(cast(PromptRows, run.rows), of_each_answer, draw)
        known, rows, busy_s = self.answered(run, asked, trains=True)
        told = made_rows.told(config, known.facts, rows, self.names) | known.by_name(run.workers.names)
        self.warn(run, told)
        rollout = self.whole(run, number, known.facts, rows, told=told)
        return replace(rollout, made_s=busy_s, waited_s=time.perf_counter() - started - busy_s)

    def answered(self, run: Run, asked: Asked, *, trains: bool) -> tuple[Known, list[Row], float]:
        """What all nodes know of their answers, the answers themselves, and this node's own seconds."""
        started, world = time.perf_counter(), run.world
        names = run.workers.names
        speeds = [self.speeds.get(name, 0.0) for name in names]
        hand = HandOut(world, speeds if all(speeds) else run.balance.shares, len(asked))
        made, problem = self.attempt(run, asked, hand)
        if trains:
            self.ask_again(run, list(made.values()))
        busy_s = time.perf_counter() - started - hand.idle_s
        effort = Effort(busy_s, hand.idle_s, self.generator.seconds, self.generator.tokens, hand.handed_over)
        facts = {number: self.facts_of(one) for number, one in made.items()}
        sizes = {"count": len(asked), "size": self.size}
        known = exchange_facts(world, facts, **sizes, effort=effort, problem=problem)
        self.speeds |= {name: one.speed for name, one in zip(names, known.efforts, strict=True) if one.tokens}
        prompts = [asked.rows.prompt(index) for index in asked.prompts]
        columns = {"old": trains and self.config.steps_per_rollout > 1, "base": trains and self.config.beta > 0}
        rows = exchange_rows(world, {number: one.row for number, one in made.items()}, known, prompts, **columns)
        return known, rows, busy_s

    def whole(
        self, run: Run, number: int, facts: list[Facts], rows: list[Row], *, told: event_types.Rollout
    ) -> Rollout:
        pad_id = cast(PromptRows, run.rows).pad_id
        return made_rows.rollout_of(self.config, number, facts, rows, told=told, pad_id=pad_id)

    def resumed(self, run: Run, prompts: list[int], state: KeptRollout) -> Rollout:
        """What `state` of a rollout was taken of."""
        rows = cast(PromptRows, run.rows)
        facts = [Facts.of(numbers) for numbers in state["facts"]]
        found = [
            Row(prompt=rows.prompt(prompts[at // self.config.group]), tokens=tokens, old_log_p=old, base_log_p=base)
            for at, (tokens, old, base) in enumerate(state["rows"])
        ]
        return self.whole(run, state["number"], facts, found, told=state["told"]).again(run.workers.names)

    def answer_s(self, config: GrpoConfig, module: LossModule) -> float:
        """Seconds of one answer, with as many side by side as a run makes; on a processor, where this process makes
        them and more take longer, a few are enough."""
        few = self.server is None and next(module.parameters()).device.type == "cpu"
        count = min(FEW if few else config.answers_at_once, config.answers_side_by_side)
        return seconds_of_an_answer(self.generator, module, count, config.prompt_tokens, warm=not few)

    def held_out(self, run: Run) -> tuple[float, int, dict[str, float]] | None:
        """The mean reward of answers without chance, as a loss that falls when it rises; and of each function."""
        rows, some = cast(PromptRows, run.held_out), looked_at(run.held_out, run.config.eval_rows)
        whole = [(name, number) for name, numbers in some for number in numbers]
        if not (count := len(whole)):
            return None
        asked = Asked(rows, [number for _, number in whole], Draw(seed=run.config.seed, rollout=None))
        known, answers, _ = self.answered(run, asked, trains=False)
        facts = known.facts
        self.show(rows, asked.prompts[:SHOWN], answers[:SHOWN])
        reward = statistics.fmean(one.reward for one in facts)
        functions = made_rows.by_function(facts, self.names)
        by_data: dict[str, list[float]] = {}
        for (name, _), one in zip(whole, facts, strict=True):
            by_data.setdefault(f"{ON_DATA}{name}", []).append(one.reward)
        each = {name: statistics.fmean(values) for name, values in by_data.items() if rows.parts}
        return -reward, count, {"reward": reward, **functions, **each}

    def show(self, rows: PromptRows, numbers: Sequence[int], answers: Sequence[Row]) -> None:
        texts = self.texts([answer.tokens for answer in answers])
        asked = [rows.record(number)["prompt"] for number in numbers]
        self.shown = [
            {"given": one if isinstance(one, str) else str(one[-1]["content"]), "wrote": text}
            for one, text in zip(asked, texts, strict=True)
        ]

    def warn(self, run: Run, told: event_types.Rollout) -> None:
        """Says once what a step is worth little for."""
        problems = {EQUAL: told["equal_groups"], ENDLESS.format(self.config.max_new_tokens): told["cut"]}
        for problem, share in problems.items():
            if share == 1 and problem not in self.warned:
                self.warned.add(problem)
                run.reporter.warn(run.step + 1, problem)

    def attempt(self, run: Run, asked: Asked, hand: HandOut) -> tuple[dict[int, Made], BadInput | None]:
        """This node's answers with their rewards; what is wrong with a reward is told to all nodes first."""
        try:
            self.judge.started()  # a file that cannot be read costs no answers
            answers = dict(sorted(self.generator.make(run, asked, hand).items()))
            scored = self.score(asked, answers)
        except PeerFailed:  # there is nobody to tell
            raise
        except BadInput as problem:
            hand.leave()
            return {}, problem
        return {
            number: Made(
                row=Row(prompt=asked.rows.prompt(asked.prompts[number]), tokens=answer.tokens),
                log_p=answer.log_p,
                rewards=each,
                total=total,
            )
            for (number, answer), (total, each) in zip(answers.items(), scored, strict=True)
        }, None

    def score(self, asked: Asked, answers: dict[int, Answer]) -> list[tuple[float, list[float]]]:
        """What the rewards of each answer are together, and each of them."""
        if not answers:
            return []
        records = [asked.rows.record(asked.prompts[number]) for number in answers]
        names = dict.fromkeys(name for record in records for name in record["columns"])
        columns = {name: [record["columns"].get(name) for record in records] for name in names}
        prompts = [record["prompt"] for record in records]
        texts = self.texts([answer.tokens for answer in answers.values()])
        completions = [as_answered(prompt, text) for prompt, text in zip(prompts, texts, strict=True)]
        scored = self.judge.score(prompts, completions, columns)
        by_function = [list(map(as_number, scored.by_function[name])) for name in self.names]
        return [(total, [values[at] for values in by_function]) for at, total in enumerate(scored.total)]

    def texts(self, answers: Sequence[list[int]]) -> list[str]:
        decode = self.chat.tokenizer.decode
        return [str(decode(tokens, skip_special_tokens=True)) for tokens in answers]

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
            with torch.no_grad(), run.module.autocast():
                values = placed_log_p(run.module.model, batch, temperature=self.config.temperature).cpu()
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


made = GrpoRecipe


def as_answered(prompt: Any, text: str) -> Any:
    """An answer as TRL gives it to a reward: to turns a turn."""
    return text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]


def as_number(value: float | None) -> float:
    """None, where a function does not apply, travels as what is no number."""
    return math.nan if value is None else value
