"""The table of models in docs/training.md, from the catalogue: python -m tests.support.model_table writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.tables import table, with_lines
from train.plan.model.catalogue import Facts, catalogue, resolve_model
from train.plan.model.memory import ALL_LINEAR, Setup, base_bytes, lora_parameters, parameters

PAGE = Path(__file__).parents[2] / "docs/training.md"
MADE = {"smollm2-135m": "made from a Python package, without the hub", "tiny": "random, made on the spot; for tests"}
HEAD = ("name", "on the hub", "licence", "weights", "GB in 16 bit", "GB in 4 bit", "adapter, r 16", "gated")


def cells(name: str, entry: dict[str, Any]) -> list[str]:
    facts = resolve_model(name).facts
    assert isinstance(facts, Facts)
    names = ", ".join(f"`{one}`" for one in (name, *entry.get("aliases", ())))
    count, adapter = parameters(facts), 4 * lora_parameters(facts, 16, ALL_LINEAR)
    return [
        names + " *" * (not entry.get("checked")),
        MADE.get(name) or entry["hub"],
        entry["licence"],
        f"{count / 1e9:.1f} B" if count >= 1e8 else f"{count / 1e6:.0f} M",
        f"{2 * count / 1e9:.1f}" if count >= 1e8 else "",
        f"{base_bytes(facts, Setup(load_in='4bit')) / 1e9:.1f}" if name not in MADE else "",
        f"{adapter / 1e6:.0f} MB" if adapter >= 1e6 else f"{adapter / 1e6:.1f} MB",
        "yes" if entry.get("gated") else "",
    ]


def page_with_table(text: str) -> str:
    return with_lines(text, "models", table(HEAD, (cells(*model) for model in catalogue()["models"].items())))


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text()))
