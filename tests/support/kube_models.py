"""Whether an object has the fields and types of the Kubernetes API, by the models that lightkube makes from its public
specification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from lightkube.models import batch_v1, core_v1, networking_v1

GROUPS = {"v1": core_v1, "batch/v1": batch_v1, "networking.k8s.io/v1": networking_v1}


def wrong(entry: Mapping[str, Any]) -> list[str]:
    """The first field that is missing or of another type, else each that is unknown."""
    kind = getattr(GROUPS.get(entry["apiVersion"]), entry["kind"], None)
    if kind is None:
        return [f"{entry['apiVersion']} {entry['kind']}: no such kind"]
    try:
        known = msgspec.to_builtins(msgspec.convert(entry, kind))
    except msgspec.ValidationError as error:
        return [str(error)]
    return list(_left_out(entry, known, entry["kind"]))


def _left_out(value: Any, known: Any, where: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, one in value.items():
            if name in known:
                yield from _left_out(one, known[name], f"{where}.{name}")
            else:
                yield f"{where}.{name}: there is no such field"
    elif isinstance(value, list):
        for number, (one, other) in enumerate(zip(value, known, strict=True)):
            yield from _left_out(one, other, f"{where}[{number}]")
