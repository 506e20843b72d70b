"""Training by preferences: of two answers to a prompt the better one becomes likelier than the other
(recipes/__init__.py says what each part is).

rows          pairs of a prepared data set, or single answers that are called good or bad
prepare_step  what the base says of the step's answers, asked once for each row, and known to all nodes; for loss=kto
              how far the model is from its base at all, which is a mean over the answers of the whole step
held_out      the loss, the margin and how many pairs are the right way round, over rows that are held out
build         a language model with its adapter, as of recipe=sft; the base is the same one without the adapter; for
              loss=reward a head beside it, which scores an answer

What a row's loss needs is the row, the weights and numbers that all nodes have: so the run is the same however the rows
are shared.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from peft.tuners.tuners_utils import BaseTunerLayer

from train.data.mix_data_sets import looked_at
from train.data.rows import date_of, padded_left, template_of
from train.data.to_tokens import Chat, asked_text, end_ids, load_chat
from train.models.backends import Batch, LossModule, at_rest, to_tensors
from train.models.model_files import model_folder
from train.models.sample_tokens import Draw, answers
from train.plan.model.catalogue import resolve_model
from train.plan.placement.decisions import Decisions
from train.plan.settings.read_settings import PreferenceConfig
from train.plan.speed.row_split import parts, spans, split_rows
from train.recipes import model_card, prepared
from train.recipes.answers_as_rows import Compared
from train.recipes.preference import losses as preference
from train.recipes.preference import reward_head
from train.recipes.preference.losses import METRICS
from train.recipes.preference.reference import References, file_for
from train.recipes.preference.rows import QUESTIONS, Columns, PairRows, open_pairs
from train.recipes.sft import recipe as sft
from train.runlog.events import ON_DATA

if TYPE_CHECKING:
    from train.engine.loop import Run

SHOWN, SHOWN_TOKENS = 4, 32
"""Held-out prompts that an evaluation answers, and how long."""


class PreferenceRecipe:
    def __init__(self, config: PreferenceConfig) -> None:
        self.config = config
        self.loss = preference.Loss(
            name=config.loss,
            beta=config.beta,
            label_smoothing=config.label_smoothing,
            gamma=config.simpo_gamma,
            centre=config.center_rewards_coefficient,
        )
        self.folder = Path()
        self.known: dict[Path, References] = {}
        """What the base says, of each split."""

    # -- what every recipe has ----------------------------------------------------------------------------------------

    def rows(self, config: PreferenceConfig, say: Callable[[str], None]) -> tuple[PairRows, PairRows]:
        self.folder = prepared(config, say)
        train, held_out = (open_pairs(self.folder, split, paired=config.paired) for split in ("train", "eval"))
        return train, held_out

    start, start_for_trial = staticmethod(sft.start), staticmethod(sft.start_for_trial)
    shape, identity = staticmethod(sft.shape), staticmethod(sft.identity)
    optimized, export = staticmethod(sft.optimized), staticmethod(sft.export)

    def build(
        self, config: PreferenceConfig, decisions: Decisions, start: Path, device: str, row_length: int
    ) -> LossModule:
        built = sft.build(config, decisions, start, device, row_length)
        if config.scores:
            reward_head.add(built.model, config.seed, device)
        measured = partial(preference.measured, self.loss)
        return LossModule(built.model, built.loss_sum, built.autocast, METRICS[config.loss], measured, in_steps=True)

    def full_rows(self, count: int, length: int, vocabulary: int, device: str, seed: int = 0) -> Batch:
        lines = count * self.config.lines_of_row
        batch = sft.full_rows(lines, length, vocabulary, device, seed)
        zeros, ones = torch.zeros(lines, device=device), torch.ones(lines, device=device)
        return {
            **batch,
            "answer": torch.ones(lines, length, device=device),
            **({"base_log_p": zeros} if self.config.compares else {}),
            **({"learned": ones[:count]} if self.config.loss == "orpo" else {}),
            **({"length": length * ones} if self.config.scores else {}),
            **({} if self.config.paired else {"good": ones, "kl": zeros, "of_good": ones, "of_bad": zeros}),
        }

    def samples(self, run: Run) -> list[dict[str, str]]:
        """What the model answers to some prompts that are held out; a reward model answers none."""
        if self.config.scores:
            return []
        rows = cast(PairRows, run.held_out)
        file = rows.folder.parent / QUESTIONS
        asked = [json.loads(line)[:-1] for line in file.read_text().splitlines()[:SHOWN]] if file.is_file() else []
        if not asked:
            return []
        said = self.said(run, asked, rows.packed.pad_id)
        return [{"given": str(turns[-1]["content"]), "wrote": one} for turns, one in zip(asked, said, strict=True)]

    def said(self, run: Run, asked: list[Any], pad_id: int) -> list[str]:
        """The greedy answers of the model as it is now, all at once."""
        tokenizer, model = self.chat.tokenizer, cast(Any, run.module.model)
        rendered = [asked_text(self.chat, turns) for turns in asked]
        prompts = [tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids for text in rendered]
        given, draw = to_tensors(padded_left(prompts, pad_id), run.device), Draw(seed=0, rollout=None)
        with at_rest(model), run.module.autocast():
            found = answers(model, given, range(len(asked)), draw, end_ids=self.end_ids, most=SHOWN_TOKENS)
        return [str(tokenizer.decode(one.tokens, skip_special_tokens=True)) for one in found]

    def card(self, run: Run) -> str:
        config, right = self.config, run.milestones.metrics.get("accuracy")
        measure = f"held-out loss ({config.loss}{'' if config.scores else f', beta {config.beta:g}'})"
        also = {} if right is None else {"held-out pairs the right way round": f"{100 * right:.1f} %"}
        return model_card.card(run, run.milestones.base, run.milestones.newest, measure=measure, also=also)

    def answer_s(self, config: PreferenceConfig, module: LossModule) -> float:
        """Nothing: the base is asked once in all, not in each step."""
        return 0.0

    def ready(self, tell: Callable[[str], None]) -> None:
        """Nothing is beside the run."""

    def close(self) -> None:
        """Nothing is beside the run."""

    @cached_property
    def chat(self) -> Chat:
        """The template and the date are those of the rows."""
        own = date_of(self.folder), template_of(self.folder)
        return load_chat(resolve_model(model_folder(self.config.model)), *own)

    @cached_property
    def end_ids(self) -> list[int]:
        return end_ids(self.chat)

    # -- what a step compares -----------------------------------------------------------------------------------------

    def prepare_step(self, run: Run, rows: list[int], slices: Sequence[tuple[int, int]]) -> Compared:
        return self.compared(run, cast(PairRows, run.rows), rows, slices[run.workers.of(run.world.rank)])

    def compared(self, run: Run, rows: PairRows, of: list[int], span: tuple[int, int]) -> Compared:
        """What all nodes know of these rows; `span`: those of this node among them."""
        if not self.config.compares:
            return Compared(config=self.config, rows=rows, of=of, base_log_p=np.zeros((len(of), 2)))
        started, mine = time.perf_counter(), of[slice(*span)]
        values = np.zeros((len(of), 2))
        references = self.references(run, rows)
        self.ask_base(run, rows, references, mine)
        values[slice(*span)] = references.values[mine]
        away = 0.0 if self.config.paired else self.away_from_base(run, rows, references, mine)
        made_s = time.perf_counter() - started
        from_ranks = run.world.numbers([away, *values.flatten().tolist()])
        whole = np.sum([part[1:] for part in from_ranks], axis=0).reshape(-1, 2)
        references.learn(of, whole)
        if run.world.writes:
            references.keep()
        return Compared(
            config=self.config,
            rows=rows,
            of=of,
            base_log_p=whole,
            kl=max(0.0, sum(part[0] for part in from_ranks) / max(1, len(of))),
            made_s=made_s,
            waited_s=time.perf_counter() - started - made_s,
        )

    def references(self, run: Run, rows: PairRows) -> References:
        if rows.folder not in self.known:
            held = {name: str(run.math[name]) for name in ("precision", "load_in")}
            key = {"rows": rows.hash, "base": run.trains_on["base weights"], **held}
            self.known[rows.folder] = References(file_for(run.config.home_folder, key), len(rows))
        return self.known[rows.folder]

    def ask_base(self, run: Run, rows: PairRows, references: References, mine: list[int]) -> None:
        if not (lacking := references.lacking(mine)):
            return
        with without_adapter(run.module.model):
            values = [self.log_p(run, rows.filled(rows.sequences(lacking, which))) for which in (0, 1)]
        references.learn(lacking, np.stack(values, axis=1))

    def away_from_base(self, run: Run, rows: PairRows, references: References, mine: list[int]) -> float:
        """The sum, over answers that belong to other prompts, of how much likelier they are than for the base."""
        said = self.log_p(run, rows.filled(rows.sequences(mine, 1)))
        return float((said - references.values[mine, 1]).sum())

    def log_p(self, run: Run, batch: Columns) -> NDArray[np.float64]:
        """The log-probability of each answer, some at a time, as the model is now."""
        at_once = run.micro_batch * self.config.lines_of_row
        found = [np.zeros(0)]
        with at_rest(run.module.model), run.module.autocast():
            for some in parts(len(batch["labels"]), at_once):
                part = to_tensors({name: column[some] for name, column in batch.items()}, run.device)
                found.append(preference.of_answers(run.module.model, part).cpu().numpy())
        whole: NDArray[np.float64] = np.concatenate(found)
        return whole

    def held_out(self, run: Run) -> tuple[float, int, dict[str, float]] | None:
        """The mean loss over held-out rows, their number, and the metrics, of several data sets also the loss of each;
        each node looks at its part."""
        whole = looked_at(run.held_out, run.config.eval_rows)
        if not (count := sum(len(some) for _, some in whole)):
            return None
        workers, rank = run.workers, run.world.rank
        first, end = spans(split_rows(count, [1.0] * len(workers.groups)))[workers.of(rank)]
        rows = [row for _, some in whole for row in some]
        compared = self.compared(run, cast(PairRows, run.held_out), rows, (first, end))
        bounds = np.cumsum([0, *(len(some) for _, some in whole)])
        own = [(max(first, int(a)), min(end, int(b))) for a, b in itertools.pairwise(bounds)]
        mine = np.stack([self.sums(run, compared, part) for part in own])
        by_data = np.sum([np.reshape(one, mine.shape) for one in run.world.numbers(mine.flatten().tolist())], axis=0)
        loss, *seen = by_data.sum(axis=0).tolist()
        each = {
            f"{ON_DATA}{name}": float(sums[0]) / len(some)
            for (name, some), sums in zip(whole, by_data, strict=True)
            if name
        }
        return loss / count, count, compared.figures(seen) | each

    def sums(self, run: Run, compared: Compared, part: tuple[int, int]) -> NDArray[np.float64]:
        """The summed loss of these rows, and the sums of the metrics."""
        found = np.zeros(1 + len(METRICS[self.config.loss]))
        with torch.no_grad(), at_rest(run.module):
            for some in parts(max(0, part[1] - part[0]), run.micro_batch):
                batch = to_tensors(compared.batch([part[0] + at for at in some]), run.device)
                found += run.module.measure(batch).double().cpu().numpy()
        return found


made = PreferenceRecipe


@contextmanager
def without_adapter(model: Any) -> Iterator[None]:
    """The base; also where the adapter is off already, which then stays so."""
    layers = (module for module in model.modules() if isinstance(module, BaseTunerLayer))
    if next((layer.disable_adapters for layer in layers), False):
        yield
        return
    with model.disable_adapter():
        yield
