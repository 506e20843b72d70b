"""The answers of one step, or of an evaluation, as rows to compare: what all nodes know of all of them beside their
tokens (recipes/preference/losses.py says what a batch has)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from train.data.rows import IGNORED
from train.plan.settings.read_settings import PreferenceConfig
from train.recipes.preference.losses import METRICS
from train.recipes.preference.rows import Columns, PairRows
from train.runlog.event_types import MadeRows

OF_BOTH, OF_GOOD, OF_BAD = ("margin",), ("chosen_log_p",), ("rejected_log_p",)


@dataclass(frozen=True, kw_only=True)
class Compared:
    config: PreferenceConfig
    rows: PairRows
    of: list[int]
    """The row of the data of each."""
    base_log_p: NDArray[np.float64]
    """What the base says of both sequences of each; nothing where the loss does not ask."""
    kl: float = 0.0
    """How far the model is from its base at all, in this step."""
    made_s: float = 0.0
    waited_s: float = 0.0

    @property
    def targets(self) -> NDArray[np.int32]:
        return self.rows.targets[self.of]

    @property
    def good(self) -> NDArray[np.uint8]:
        found: NDArray[np.uint8] = np.asarray(self.rows.labels[self.of])
        return found

    def token_count(self, indices: list[int]) -> int:
        lengths = self.rows.lengths[[self.of[index] for index in indices]]
        return int((lengths if self.config.paired else lengths[:, :1]).sum())

    def batch(self, indices: list[int], position: int = 0) -> Columns:
        own = [self.of[index] for index in indices]
        if not self.config.paired:
            batch = self.rows.filled(self.rows.sequences(own, 0))
            return self.with_base(batch, indices, 1) | self.of_labels(indices) | answers_of(batch)
        batch = self.rows.batch(own)
        batch |= answers_of(batch)
        if self.config.loss == "orpo":
            batch |= self.learned(batch, own)
        if self.config.scores:
            batch |= {"length": self.rows.lengths[own].T.reshape(-1)}
        return self.with_base(batch, indices, 2)

    def with_base(self, batch: Columns, indices: list[int], sequences: int) -> Columns:
        if not self.config.compares:
            return batch
        return batch | {"base_log_p": self.base_log_p[indices, :sequences].T.reshape(-1).astype(np.float32)}

    def of_labels(self, indices: list[int]) -> Columns:
        good, of_good, of_bad = self.good[indices], *(self.parts(label)[indices] for label in (1, 0))
        kl = np.full(len(indices), self.kl, dtype=np.float32)
        return {"good": good.astype(np.int64), "kl": kl, "of_good": of_good, "of_bad": of_bad}

    def parts(self, label: int) -> NDArray[np.float32]:
        """Factors of the rows by which a mean over all is that over those with this label."""
        own = (self.good == label).astype(np.float32)
        found: NDArray[np.float32] = own * len(own) / max(1.0, own.sum())
        return found.astype(np.float32)

    def learned(self, batch: Columns, own: list[int]) -> Columns:
        """The whole of each better sequence, prompt too, as what is learned: a mean over the tokens of all of the
        step's, in a loss that is a mean over its rows."""
        lengths, labels = self.rows.lengths[own, 0], batch["labels"].copy()
        for row, length in enumerate(lengths):
            labels[row, :length] = batch["input_ids"][row, :length]
        tokens = int((self.rows.lengths[self.of, 0] - 1).sum())
        return {"labels": labels, "learned": np.full(len(own), len(self.of) / tokens, dtype=np.float32)}

    def figures(self, seen: list[float]) -> dict[str, float]:
        """The metrics from their sums; of single answers those alone of which there are any."""
        found = {name: total / len(self.of) for name, total in zip(METRICS[self.config.loss], seen, strict=True)}
        if not self.config.paired:
            without = {1: OF_GOOD, 0: OF_BAD}
            gone = [name for label, names in without.items() if label not in self.good for name in (*names, *OF_BOTH)]
            found = {name: value for name, value in found.items() if name not in gone} | {"kl": self.kl}
        return found

    def told_of(self, seen: list[float]) -> MadeRows:
        return {"pairs": self.figures(seen)}

    def state(self, number: int) -> None:
        """Nothing: the base says the same again."""


def answers_of(batch: Columns) -> Columns:
    return {"answer": (batch["labels"] != IGNORED).astype(np.float32)}
