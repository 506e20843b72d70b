"""Makes the answers of a rollout in the training process, as many as the list of all nodes gives to this one."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from train.models.backends import at_rest, to_tensors
from train.models.sample_tokens import Answer, Draw, answers
from train.models.vllm import Server
from train.recipes.grpo.hand_out import Begun, HandOut
from train.recipes.grpo.rows import PromptRows

if TYPE_CHECKING:
    from train.engine.loop import Run
    from train.models.backends import LossModule

TIMED_TOKENS = 8
"""How long an answer is whose seconds are measured; the others take as long."""
TRIAL = Draw(seed=0, rollout=0)


@dataclass(frozen=True)
class Asked:
    """What all nodes answer together."""

    rows: PromptRows
    prompts: Sequence[int]
    """The row of each answer's prompt."""
    draw: Draw

    def __len__(self) -> int:
        return len(self.prompts)


class Generator:
    def __init__(self, most: int, at_once: int) -> None:
        """`most`: tokens of an answer; `at_once`: answers side by side, fewer after an out-of-memory."""
        self.most, self.at_once = most, at_once
        self.seconds, self.tokens = 0.0, 0
        """What this node took for the last rollout."""

    def make(self, run: Run, asked: Asked, hand: HandOut) -> dict[int, Answer]:
        """The answers that this node has ended, when all nodes have ended theirs."""
        self.seconds, self.tokens = 0.0, 0
        found: dict[int, Answer] = {}
        with at_rest(run.module.model):
            while work := hand.next(self.at_once):
                started = time.perf_counter()
                found |= self.done(run, asked, work, hand)
                self.seconds += time.perf_counter() - started
        return found

    def trial(self, module: LossModule, prompts: list[list[int]], tokens: int) -> None:
        """Makes answers of so many tokens, which nothing ends before."""
        ids = torch.tensor(prompts, device=next(module.parameters()).device)
        asked = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        with module.autocast():
            answers(module.model, asked, range(len(ids)), TRIAL, end_ids=(), most=tokens)

    def done(self, run: Run, asked: Asked, work: list[Begun], hand: HandOut) -> dict[int, Answer]:
        found: dict[int, Answer] = {}
        while work := [one for one in work if one.number not in hand.given and one.number not in found]:
            part = work[: self.at_once]
            try:
                with run.module.autocast():
                    found |= self.part(run, asked, part, hand)
            except torch.OutOfMemoryError:
                if self.at_once == 1:
                    raise
                self.at_once //= 2
                torch.cuda.empty_cache()
                run.reporter.warn(run.step, f"{run.world.node}: out of memory, now {self.at_once} answers at a time")
        return found

    def part(self, run: Run, asked: Asked, part: list[Begun], hand: HandOut) -> dict[int, Answer]:
        numbers = [one.number for one in part]
        begun = [one.answer for one in part]
        behind = [answer.tokens for answer in begun]
        prompts = to_tensors(asked.rows.prompts([asked.prompts[number] for number in numbers], behind), run.device)

        def stays(live: Sequence[int], sofar: Sequence[Answer]) -> Collection[int]:
            mine = hand.stays([Begun(numbers[at], sofar[at]) for at in live], self.most)
            return [at for at in live if numbers[at] in mine]

        made = answers(
            run.module.model, prompts, numbers, asked.draw, end_ids=asked.rows.end_ids, most=self.most, begun=begun,
            stays=stays,
        )  # fmt: skip
        self.tokens += sum(len(after.tokens) - len(before) for after, before in zip(made, behind, strict=True))
        return {number: one for number, one in zip(numbers, made, strict=True) if number not in hand.given}


class ServedGenerator(Generator):
    """Makes answers by a server beside this process. What that has begun nobody else can end: its chance is its own."""

    def __init__(self, server: Server, most: int, at_once: int) -> None:
        super().__init__(most, at_once)
        self.server = server

    def trial(self, module: LossModule, prompts: list[list[int]], tokens: int) -> None:
        self.server.take(module.model, 0)
        self.server.answers(prompts, range(len(prompts)), TRIAL, end_ids=(), most=tokens)

    def done(self, run: Run, asked: Asked, work: list[Begun], hand: HandOut) -> dict[int, Answer]:
        self.server.take(run.module.model, run.step)
        numbers = [one.number for one in work]
        prompts = [asked.rows.prompt(asked.prompts[number]) for number in numbers]
        made = self.server.answers(prompts, numbers, asked.draw, end_ids=asked.rows.end_ids, most=self.most)
        self.tokens += sum(len(one.tokens) for one in made)
        return dict(zip(numbers, made, strict=True))


def seconds_of_an_answer(
    generator: Generator, module: LossModule, count: int, prompt_tokens: int, *, warm: bool
) -> float:
    """One of `count` side by side, all as long as they may be: prompts of chance, which a few tokens follow. `warm`:
    after some that do not count, as libraries load at first."""
    vocabulary = module.model.get_input_embeddings().num_embeddings

    def took(tokens: int) -> float:
        prompts = torch.randint(0, vocabulary, (count, prompt_tokens)).tolist()  # others: a server remembers them
        started = time.perf_counter()
        generator.trial(module, prompts, tokens)
        return time.perf_counter() - started

    with at_rest(module.model):
        if warm:
            took(1)
        first_s, more_s = took(1), took(1 + TIMED_TOKENS)
    return (first_s + max(0.0, more_s - first_s) / TIMED_TOKENS * (generator.most - 1)) / count
