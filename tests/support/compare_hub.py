"""Compares the catalogue's models with the hub: python -m tests.support.compare_hub [NAME …]. Needs the internet.

The sizes in config.json, of the copy in 4 bit too; the licence; and whether it is gated. A gated one needs HF_TOKEN.
One that is as the hub has it gets `checked: true` in catalogue.yml, by hand.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from train.errors import BadInput
from train.hub import explained, hub_file
from train.plan.model.catalogue import catalogue, facts_of, read_config, resolve_model

NOT_THERE = ("on_disk", "counts")
"""What no config.json says: how a copy is quantised is known by its name, counts are made from the sizes."""


def difference(name: str) -> str:
    entry = catalogue()["models"][name]
    if "hub" not in entry or "embedded" in entry:
        return ""
    odd = []
    for repository in filter(None, (entry["hub"], entry.get("hub_4bit"))):
        try:
            found = shape_there(name, repository)
            found += about_there(entry, repository) if repository == entry["hub"] else []
        except (BadInput, OSError) as error:
            found = [str(error).splitlines()[0]]
        odd += [f"{repository}: {'; '.join(found)}"] if found else []
    return " | ".join(odd)


def shape_there(name: str, repository: str) -> list[str]:
    seen = facts_of(read_config(hub_file(repository, "config.json").parent), repository)
    model = resolve_model(name)
    listed = dataclasses.asdict(model.facts) if model.facts else {}
    return [
        f"{key} {value}, there {getattr(seen, key)}"
        for key, value in listed.items()
        if key not in NOT_THERE and getattr(seen, key) != value
    ]


def about_there(entry: dict[str, Any], repository: str) -> list[str]:
    from huggingface_hub import HfApi  # noqa: PLC0415  reads HF_ENDPOINT as it is imported

    with explained(repository, "model"):
        info = HfApi().model_info(repository)
    card: Any = info.card_data or {}
    licence = card.get("license_name") if card.get("license") == "other" else card.get("license")
    there = {"gated": bool(info.gated), "licence": licence}
    listed = {"gated": False} | entry
    return [f"{key} {listed[key]}, there {value}" for key, value in there.items() if listed[key] != value]


def main(names: list[str]) -> int:
    found = {name: difference(name) for name in names or catalogue()["models"]}
    for name, odd in found.items():
        print(f"{name:20} {odd or 'as the hub has it'}")
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
