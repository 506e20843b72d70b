"""From the answers to the scores: the harness's own, as lm_eval.simple_evaluate gives them on one machine.

Its evaluation runs over a model that only repeats what was answered. What an adapter has changed is the difference of
two scores over the same documents, so its standard error is that of the differences by document where a score is their
mean; else that of two scores that know nothing of each other, which is larger.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from typing import Any

from lm_eval import evaluator
from lm_eval.api.instance import Instance
from lm_eval.api.metrics import mean, mean_stderr
from lm_eval.api.model import LM

from train.recipes.evaluate.load_tasks import Loaded
from train.recipes.evaluate.model import Answers

DRAWS = 1000
"""Samples of a bootstrapped standard error (of f1 and its like)."""
CHANCE = 1.96
"""Standard errors within which 19 of 20 differences lie that mean nothing."""
Row = dict[str, Any]
Said = Mapping[str, Iterable[tuple[range, Answers]]]
"""Task → the answers to ranges of its documents."""


class Recorded(LM):  # type: ignore[misc]
    """Gives the answers that were given, in the harness's order within each document."""

    def __init__(self, said: Said) -> None:
        super().__init__()
        self.answers: dict[tuple[str, str, int], Iterator[Any]] = {
            (task, kind, number): iter(answers)
            for task, parts in said.items()
            for documents, by_kind in parts
            for kind, answered in by_kind.items()
            for number, answers in zip(documents, answered, strict=True)
        }

    def _next(self, kind: str, requests: list[Instance]) -> list[Any]:
        return [next(self.answers[str(one.task_name), kind, int(one.doc_id)]) for one in requests]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return [(float(log_p), bool(greedy)) for log_p, greedy in self._next("loglikelihood", requests)]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        return [float(log_p) for log_p in self._next("loglikelihood_rolling", requests)]

    def generate_until(self, requests: list[Instance]) -> list[str]:
        return [str(text) for text in self._next("generate_until", requests)]


def scores(loaded: Loaded, said: Said, *, limit: int) -> dict[str, Any]:
    """The harness's results over these answers; `loaded` is as requests.build has left it."""
    with redirect_stdout(io.StringIO()):  # it says that it draws samples
        found: dict[str, Any] = evaluator.evaluate(
            Recorded(said), loaded, limit=limit or None, bootstrap_iters=DRAWS, log_samples=True
        )
    return found


def compared(loaded: Loaded, by_side: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """A row for each metric of each task and group, in the order in which they were asked for; `by_side`: of each
    side the harness's results."""
    base = by_side["base"]
    inside = {part: group for group, parts in base["group_subtasks"].items() for part in parts}
    rows: list[Row] = []
    for name, results in base["results"].items():
        for key, value in results.items():
            metric, _, kind = key.partition(",")
            if not kind or metric.endswith("_stderr") or not isinstance(value, (int, float)):
                continue
            better = base["higher_is_better"].get(name, {}).get(metric)
            row: Row = {
                "task": name,
                "group": inside.get(name, ""),
                "metric": metric if kind == "none" else f"{metric} ({kind})",
                "higher_is_better": better,
                "documents": base["n-samples"].get(name, {}).get("effective"),
                "shots": base["n-shot"].get(name, 0),
            }
            errors = {side: error_of(each["results"][name], metric, kind) for side, each in by_side.items()}
            for side, each in by_side.items():
                row |= {side: finite(each["results"][name][key]), f"{side}_error": finite(errors[side])}
            if "adapter" in by_side:
                change = by_side["adapter"]["results"][name][key] - value
                error = by_document(loaded, name, metric, kind, by_side)
                if error is None and None not in errors.values():
                    error = math.hypot(*(each or 0.0 for each in errors.values()))
                row |= {"change": finite(change), "change_error": finite(error)}
                row |= {"verdict": verdict(change, error, better)}
            rows.append(row)
    return rows


def error_of(results: Mapping[str, Any], metric: str, kind: str) -> float | None:
    error = results.get(f"{metric}_stderr,{kind}")
    return float(error) if isinstance(error, (int, float)) else None


def finite(value: float | None) -> float | None:
    """JSON has no other numbers."""
    return float(value) if value is not None and math.isfinite(value) else None


def by_document(
    loaded: Loaded, name: str, metric: str, kind: str, by_side: Mapping[str, Mapping[str, Any]]
) -> float | None:
    """The standard error of the change where the score is a mean over documents; else None."""
    task = loaded["tasks"].get(name)
    if task is None or task.aggregation().get(metric) is not mean:
        return None
    values = [
        {sample["doc_id"]: sample.get(metric) for sample in side["samples"][name] if sample["filter"] == kind}
        for side in (by_side["base"], by_side["adapter"])
    ]
    if values[0].keys() != values[1].keys() or len(values[0]) < 2:
        return None
    pairs = [(value, values[1][number]) for number, value in values[0].items()]
    if not all(isinstance(value, (int, float)) for pair in pairs for value in pair):
        return None
    return float(mean_stderr([after - before for before, after in pairs]))


def verdict(change: float, error: float | None, higher_is_better: bool | None) -> str:
    """forgotten or learned, where the change is beyond chance; else nothing."""
    if error is None or higher_is_better is None or abs(change) <= CHANCE * error or not change:
        return ""
    return "learned" if (change > 0) == higher_is_better else "forgotten"
