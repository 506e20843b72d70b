"""Proofs that all ranks train the same thing: compared at the start, after step 1 and every so often.

Silent non-synchronisation is the classic failure of home clusters: every machine trains happily, each its own model.
Here a disagreement stops the run and names the nodes; checkpoints are written only after their adapter was proven.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from train.errors import CheckFailed


class Disagreement(CheckFailed):
    """The ranks do not train the same thing."""

    odd: frozenset[str] = frozenset()
    """The nodes that differ, where most of the others agree: these can continue without them."""


def odd_nodes(claims: list[tuple[str, dict[str, Any]]]) -> frozenset[str]:
    """Who differs from more than half of all; empty where no such majority is."""
    odd: set[str] = set()
    for fact in claims[0][1] if claims else ():
        values = [json.dumps(facts.get(fact), sort_keys=True) for _, facts in claims]
        usual, count = Counter(values).most_common(1)[0]
        if 2 * count <= len(values):
            return frozenset()
        odd |= {node for (node, _), value in zip(claims, values, strict=True) if value != usual}
    return frozenset(odd)


def disagreement(claims: list[tuple[str, dict[str, Any]]]) -> str:
    """What differs, and on which nodes; empty where all (node, facts) agree. The majority is taken to be right."""
    for fact in claims[0][1] if claims else ():
        values = [json.dumps(facts.get(fact), sort_keys=True) for _, facts in claims]
        usual, count = Counter(values).most_common(1)[0]
        if count < len(values):
            odd = [(node, value) for (node, _), value in zip(claims, values, strict=True) if value != usual]
            nodes = ", ".join(sorted({f"{node} ({_short(value)})" for node, value in odd}))
            return f"{fact} differs: {nodes}; the others have {_short(usual)}"
    return ""


def require_agreement(claims: list[tuple[str, dict[str, Any]]], when: str, fix: str) -> None:
    if found := disagreement(claims):
        error = Disagreement(f"the nodes do not train the same thing: {found}", f"found: {when}", fix)
        error.odd = odd_nodes(claims)
        raise error


def tensors_hash(named: Iterable[tuple[str, Tensor]]) -> str:
    digest = hashlib.sha256()
    for name, tensor in named:
        digest.update(name.encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy())
    return digest.hexdigest()


def _short(value: str) -> str:
    text = value.strip('"')
    return text[:12] if len(text) == 64 else text
