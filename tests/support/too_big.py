"""The tables of docs/too-big.md, from the plan's own figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.tables import table, with_lines
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import Facts, resolve_model
from train.plan.model.memory import GIB, Setup, layer_bytes, memory
from train.plan.placement.first_way_that_fits import choose
from train.plan.settings.read_settings import load_config

PAGE = Path(__file__).parents[2] / "docs/too-big.md"
MODELS = ("llama2-13b", "qwen2.5-14b", "mistral-small-24b", "qwen2.5-32b", "llama2-70b")
HOMES = ((8, 8), (16, 8), (16, 8, 8), (24, 12, 8), (24, 24, 16))
TOKENS = 1024
SOURCES = {"NVMe, 3 GB/s": 3e9, "PCIe 4 × 8, 12 GB/s": 12e9, "PCIe 4 × 16, 24 GB/s": 24e9}
LINK_BYTES = 117.5e6
"""A second, of 1 Gbit/s."""
SETUP = Setup(load_in="4bit", row_length=TOKENS)


def facts_of(name: str) -> Facts:
    facts = resolve_model(name).facts
    assert isinstance(facts, Facts)
    return replace(facts, on_disk="4bit")


def what_fits() -> list[str]:
    rows = (("+".join(map(str, home)), *(cell(name, home) for name in MODELS)) for home in HOMES)
    return table(("cards, GB", *MODELS), rows)


def cell(name: str, home: tuple[int, ...]) -> str:
    config, facts = load_config({"model": name, "max_seq_length": TOKENS}), facts_of(name)
    devices = cards(home)
    found = choose(config, devices, facts, model=name, mbit=1000)
    words = {True: "streams", False: "held"}
    each = [words[node.place.weights == "stream"] if node.fits else "too small" for node in found.nodes]
    alone = each[0] if len(set(each)) == 1 else ", ".join(f"{gb} {word}" for gb, word in zip(home, each, strict=True))
    return alone if alone == "held" else f"{alone}; {together(name, home)}"


def together(name: str, home: tuple[int, ...]) -> str:
    """Cut over all cards of a home: how many layers each has."""
    facts, devices = facts_of(name), cards(home)
    config = load_config({"model": name, "max_seq_length": TOKENS, "pipes": "+".join(one.name for one in devices)})
    found = choose(config, devices, facts, model=name, mbit=1000)
    if not found.cut or found.lacking:
        return "cut too small"
    return f"cut {' + '.join(str(end - first) for first, end in found.cut.layers.values())}"


def cards(home: tuple[int, ...]) -> list[Device]:
    return [Device(f"n{i}", "cuda", size * GIB, main_bytes=1 << 50) for i, size in enumerate(home)]


def what_it_takes() -> list[str]:
    head = ("model", "card, held", "card, streamed", "main memory", *(f"read, {source}" for source in SOURCES))
    rows = []
    for name in MODELS:
        facts = facts_of(name)
        held, streamed = (memory(facts, replace(SETUP, weights=weights)).total for weights in ("gpu", "stream"))
        layers = layer_bytes(facts, SETUP)
        reads = [f"{2 * layers / speed:.1f} s" for speed in SOURCES.values()]
        rows.append((name, *(f"{size / 1e9:.1f} GB" for size in (held, streamed, layers)), *reads))
    return table(head, rows)


def over_a_lan() -> list[str]:
    """Three nodes; seconds that 1 Gbit/s takes for a row of 1024 tokens, and for the exchange of a whole step."""
    head = ("model", "FSDP, each micro-batch", "tensor parallel, each row", "data parallel, each step")
    rows = []
    for name in MODELS:
        facts = facts_of(name)
        gathered = 2 * layer_bytes(facts, SETUP) * 2 / 3
        summed = 6 * facts.layers * (4 / 3) * 2 * TOKENS * facts.hidden
        adapter = (4 / 3) * memory(facts, SETUP).adapter / 2
        rows.append((name, *(f"{sent / LINK_BYTES:.1f} s" for sent in (gathered, summed, adapter))))
    return table(head, rows)


def page_with_tables(text: str) -> str:
    for name, made in (("fits", what_fits), ("takes", what_it_takes), ("lan", over_a_lan)):
        text = with_lines(text, name, made())
    return text


if __name__ == "__main__":
    PAGE.write_text(page_with_tables(PAGE.read_text()))
