"""The ways in which nodes can train a model that is large for them: what each takes on each node, what travels, and how
fast it is where the nodes' speeds are given. Pure.

    held      each node has the whole base where it computes
    streamed  each node brings the layers from its main memory or its files
    cut       all nodes hold it together

Seconds on the link are those of one step over the slowest one. No speed is assumed: without `--tflops`, what each node
computes with in this training, tokens per second stay open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from train.plan import speedup, stages
from train.plan.catalogue import Facts
from train.plan.config import RunConfig
from train.plan.memory import GIB, USABLE, Setup, layer_bytes, linear_parameters, lora_parameters, memory
from train.plan.nodes import Device
from train.plan.streaming import on_node, place

FLOP = 6
"""Of a weight and a token: forward, forward again, backward to the inputs. A frozen base has no gradient of weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    name: str
    gb: Mapping[str, float]
    """Memory of each node where it computes."""
    notes: Mapping[str, str]
    """Of each node: its layers, or that it is too small."""
    ok: bool
    link_s: float
    tokens_per_s: float | None
    bubble: float = 0.0


def ways(
    config: RunConfig,
    facts: Facts,
    setup: Setup,
    devices: Sequence[Device],
    *,
    mbit: float,
    tflops: Mapping[str, float],
) -> list[Way]:
    options = [_alike(kind, config, facts, setup, devices, mbit, tflops) for kind in ("held", "streamed")]
    if 1 < len(devices) <= facts.layers:
        options.append(_cut(config, facts, setup, devices, mbit, tflops))
    return options


def _alike(  # noqa: PLR0917
    kind: str,
    config: RunConfig,
    facts: Facts,
    setup: Setup,
    devices: Sequence[Device],
    mbit: float,
    tflops: Mapping[str, float],
) -> Way:
    """Data parallel: all rows are shared, and each node computes all layers."""
    weights = "stream" if kind == "streamed" else "gpu"
    needs = {one.node: memory(facts, replace(on_node(setup, one), weights=weights)).total for one in devices}
    notes = {}
    for one in devices:
        if needs[one.node] > USABLE * one.memory_bytes:
            notes[one.node] = "too small"
        elif weights == "stream" and place("stream", facts, setup, one).weights != "stream":
            notes[one.node] = "too little main memory"
    link_s = speedup.link_seconds(speedup.ring_bytes(_adapter_bytes(facts, setup, config), len(devices)), mbit)
    speed = None
    if tflops:
        compute_s = _step_flop(config, facts) / sum(tflops[one.node] * 1e12 for one in devices)
        speed = _tokens(config) / (compute_s + link_s)
    return Way(
        name=kind,
        gb={name: count / GIB for name, count in needs.items()},
        notes=notes,
        ok=not notes,
        link_s=link_s,
        tokens_per_s=speed,
    )


def _cut(  # noqa: PLR0917
    config: RunConfig, facts: Facts, setup: Setup, devices: Sequence[Device], mbit: float, tflops: Mapping[str, float]
) -> Way:
    """A pipe of all nodes, rows going through it one by one."""
    most = stages.room_of(facts, setup, devices, facts.layers)
    speeds = [tflops[one.node] for one in devices] if tflops else [float(max(1, count)) for count in most]
    cost = stages.head_cost(facts)
    counts = stages.cut_layers(facts.layers, speeds, most, head_layers=cost if tflops else 0.0)
    shown = counts or stages.cut_layers(facts.layers, speeds) or []
    needs, notes, last = {}, {}, len(devices) - 1
    for at, (one, count) in enumerate(zip(devices, shown, strict=True)):
        own = on_node(setup, one)
        needs[one.node] = stages.stage_memory(facts, own, count, first=not at, last=at == last, ahead=last - at).total
        notes[one.node] = f"{count} layers" if counts else "too small together"
    rows, border = config.rows_per_step, 2 * config.max_seq_length * facts.hidden
    adapter_s = speedup.link_seconds(speedup.ring_bytes(_adapter_bytes(facts, setup, config), len(devices)), mbit)
    hop_s = speedup.link_seconds(border, mbit)
    speed = None
    if tflops and counts:
        layer_flop = FLOP * config.max_seq_length * linear_parameters(facts) / facts.layers
        each = stages.stage_seconds(counts, [speed * 1e12 / layer_flop for speed in speeds], cost)
        step_s = sum(each) + 2 * last * hop_s + (rows - 1) * max(*each, hop_s)
        speed = _tokens(config) / (step_s + adapter_s)
    return Way(
        name="cut",
        gb={name: count / GIB for name, count in needs.items()},
        notes=notes,
        ok=counts is not None,
        link_s=rows * hop_s + adapter_s,
        tokens_per_s=speed,
        bubble=stages.bubble(len(devices), rows),
    )


def _adapter_bytes(facts: Facts, setup: Setup, config: RunConfig) -> float:
    return lora_parameters(facts, setup.lora_r, setup.lora_targets) * (4 if config.wire == "fp32" else 2)


def _tokens(config: RunConfig) -> int:
    return config.rows_per_step * config.max_seq_length


def _step_flop(config: RunConfig, facts: Facts) -> float:
    return FLOP * _tokens(config) * (linear_parameters(facts) + facts.vocab * facts.hidden)


def as_text(found: Sequence[Way], devices: Sequence[Device], source_gb: float) -> list[str]:
    """A table; `source_gb`: what the layers take where they are streamed from."""
    head = ["way", *(one.node for one in devices), "link, s a step", "tokens/s"]
    table = [head]
    for way in found:
        cells = [f"{way.gb[one.node]:.1f} GB{_note(way.notes.get(one.node, ''))}" for one in devices]
        speed = f"{way.tokens_per_s:.0f}" if way.tokens_per_s and way.ok else "-" if not way.ok else "not measured"
        table.append([way.name, *cells, f"{way.link_s:.1f}", speed])
    widths = [max(len(row[at]) for row in table) for at in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    notes = [f"streamed: the layers, {source_gb:.1f} GB, come from main memory or from files"]
    if cut := next((way for way in found if way.bubble), None):
        notes.append(f"cut: rows of a step go through all nodes, which wait for one another {cut.bubble:.0%} of it")
    return [*lines, *notes]


def _note(text: str) -> str:
    return f", {text}" if text else ""


def source_gb(facts: Facts, setup: Setup) -> float:
    return layer_bytes(facts, setup) / GIB
