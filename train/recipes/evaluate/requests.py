"""What is asked of the model for each document of a task, and how it is cut into pieces. The same on every machine.

Documents are computed in blocks of BLOCK: which requests share a batch, and so the last digits of every number, follow
from the block alone. A piece is whole blocks, so it does not matter how many pieces there are or who takes them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from lm_eval.api.instance import Instance

from train.errors import BadInput
from train.recipes.evaluate.load_tasks import Loaded

BLOCK = 16
"""Documents of a block."""
SHARE = 24
"""A piece is one part in so many of what is left, and a block at least: large while there is much, small at the end, so
that a slow machine does not keep the others waiting with a large last one."""
WRITTEN = 8
"""How many characters that are read take as long as one that is written."""
CHARACTERS = 4
"""About how many a token has."""
Requests = Mapping[str, Mapping[int, list[Instance]]]
"""Task → document → what is asked of it, in the harness's order."""


@dataclass(frozen=True, slots=True)
class Part:
    """Documents of one task, from `first` to before `end`."""

    task: str
    first: int
    end: int
    cost: float


def build(loaded: Loaded, *, limit: int, shots: int | None, seed: int) -> Requests:
    """The requests of lm_eval.simple_evaluate: its seeds, its few-shot examples."""
    random.seed(seed)
    np.random.seed(seed)
    for task in loaded["tasks"].values():
        set_shots(task, shots)
        task.set_fewshot_seed(seed=seed)
    for name, task in loaded["tasks"].items():
        try:
            task.build_all_requests(limit=limit or None)
        except Exception as error:  # whatever a task's templates meet in its documents
            what = f"tasks: {name} cannot be asked: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise BadInput(what, fix="look at its documents: each must have what the task reads") from None
    return {name: by_document(task.instances) for name, task in loaded["tasks"].items()}


def set_shots(task: Any, shots: int | None) -> None:
    """A task that sets none to 0 keeps them: its examples are in its text."""
    usual = task.get_config("num_fewshot")
    if usual is None or (shots is not None and usual != 0):
        task.set_config(key="num_fewshot", value=shots or 0)


def by_document(instances: Iterable[Instance]) -> dict[int, list[Instance]]:
    found: dict[int, list[Instance]] = defaultdict(list)
    for instance in instances:
        found[instance.doc_id].append(instance)
    return dict(found)


def cost(instance: Instance) -> float:
    """How long it takes, in characters that are read."""
    read = sum(len(text) for text in instance.args if isinstance(text, str))
    if instance.request_type != "generate_until":
        return read
    longest = int(instance.args[1].get("max_gen_toks", 256))
    return int(instance.repeats or 1) * (read + WRITTEN * CHARACTERS * longest)


def cut(requests: Requests, share: float = SHARE) -> list[Part]:
    """All documents in parts of decreasing cost; tasks whose blocks take longest come first."""
    tasks = {name: blocks_of(name, documents) for name, documents in requests.items()}
    left = sum(block.cost for blocks in tasks.values() for block in blocks)
    parts: list[Part] = []
    for blocks in sorted(tasks.values(), key=lambda blocks: -max(block.cost for block in blocks)):
        whole: Part | None = None
        for block in blocks:
            whole = Part(block.task, whole.first, block.end, whole.cost + block.cost) if whole else block
            if whole.cost >= left / share or block is blocks[-1]:
                parts.append(whole)
                left -= whole.cost
                whole = None
    return parts


def blocks_of(task: str, documents: Mapping[int, list[Instance]]) -> list[Part]:
    numbers = sorted(documents)
    costs: dict[int, float] = defaultdict(float)
    for number in numbers:
        costs[number // BLOCK * BLOCK] += sum(cost(one) for one in documents[number])
    return [Part(task, first, min(first + BLOCK, numbers[-1] + 1), whole) for first, whole in costs.items()]
