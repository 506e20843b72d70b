"""Proofs that all ranks train the same thing: compared at the start, after step 1 and every so often.

Silent non-synchronisation is the classic failure of home clusters: every machine trains happily, each its own model.
Here a disagreement stops the run and names the nodes; checkpoints are written only after their adapter was proven.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from train.errors import Disagreement
from train.models import lora_init as first_weights
from train.parallel.process_group import World

Claims = Sequence[tuple[str, Mapping[str, object]]]
"""The node of each rank, and the facts that all must have alike."""


def differing(claims: Claims) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Yields each fact that differs, what most have, and who has what instead. The majority is taken to be right."""
    for fact in claims[0][1] if claims else ():
        values = [(node, json.dumps(facts.get(fact), sort_keys=True)) for node, facts in claims]
        usual = Counter(value for _, value in values).most_common(1)[0][0]
        if odd := [(node, value) for node, value in values if value != usual]:
            yield fact, usual, odd


def require_agreement(claims: Claims, when: str, fix: str) -> None:
    if not (differ := list(differing(claims))):
        return
    fact, usual, odd = differ[0]
    nodes = ", ".join(sorted({f"{node} ({_short(value)})" for node, value in odd}))
    what = f"{fact} differs: {nodes}; the others have {_short(usual)}"
    error = Disagreement(f"the nodes do not train the same thing: {what}", f"found: {when}", fix)
    if all(2 * len(who) < len(claims) for _, _, who in differ):
        error.odd = frozenset(node for _, _, who in differ for node, _ in who)
    raise error


def tensors_hash(named: Iterable[tuple[str, Tensor]]) -> str:
    digest = hashlib.sha256()
    for name, tensor in named:
        digest.update(name.encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy())
    return digest.hexdigest()


def same_first_weights(world: World, model: Any) -> dict[str, str]:
    """What decides the loss curve beside settings and data, where an adapter begins as parts of the base: a hash of
    what stays of them, which every rank has computed."""
    if not (first := first_weights.named(model)):
        return {}
    mine = {"first weights": tensors_hash(sorted(first.items()))}
    fix = "leave lora_init out, or take machines whose processors are of one kind: --nodes A,B"
    require_agreement(world.gather([world.node, mine]), "before the first step", fix)
    return mine


def _short(value: str) -> str:
    text = value.strip('"')
    return text[:12] if len(text) == 64 else text
