"""Compares the catalogue's models with the hub: python -m tests.support.compare_hub [NAME …]. Needs the internet.

A gated one needs HF_TOKEN. One that is as the hub has it loses its `unchecked` in catalogue.yml, by hand.
"""

from __future__ import annotations

import dataclasses
import sys

from train.errors import BadInput
from train.hub import hub_file
from train.plan.model.catalogue import catalogue, facts_of, read_config, resolve_model


def difference(name: str) -> str:
    model = resolve_model(name)
    if not model.hub:
        return ""
    for repository in filter(None, (model.hub, model.hub_4bit)):
        try:
            seen = facts_of(read_config(hub_file(repository, "config.json").parent), repository)
        except (BadInput, OSError) as error:
            return f"{repository}: {str(error).splitlines()[0]}"
        listed = dataclasses.asdict(model.facts) if model.facts else {}
        odd = [f"{key} {value}, there {getattr(seen, key)}" for key, value in listed.items()
               if key != "on_disk" and getattr(seen, key) != value]  # fmt: skip
        if odd:
            return f"{repository}: {'; '.join(odd)}"
    return ""


def main(names: list[str]) -> int:
    found = {name: difference(name) for name in names or catalogue()["models"]}
    for name, odd in found.items():
        print(f"{name:20} {odd or 'as the hub has it'}")
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
