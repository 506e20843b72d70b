"""The ways in which nodes can train a model that is large for them: what each takes on each node, what travels, and how
fast it is where the nodes' speeds are given. Pure.

    held      each node has the whole base where it computes
    streamed  each node brings the layers from its main memory or its files
    cut       all nodes hold it together

Seconds on the link are those of one step over the slowest one. No speed is assumed: without `tflops`, what each node
computes with in this training, tokens per second stay open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from train.plan.estimate import pipeline_time
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import Facts
from train.plan.model.memory import GIB, USABLE, Setup, layer_bytes, linear_parameters, lora_parameters, memory
from train.plan.placement import pipeline_split
from train.plan.placement.streaming import on_node, place
from train.plan.settings.config import RunConfig
from train.plan.speed import speedup


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    name: str
    gb: Mapping[str, float]
    """Memory of each node where it computes."""
    notes: Mapping[str, str]
    """What each node has: its layers, or the word that it is too small."""
    ok: bool
    link_s: float
    tokens_per_s: float | None
    bubble: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """What is trained, and where."""

    config: RunConfig
    facts: Facts
    setup: Setup
    devices: Sequence[Device]
    mbit: float
    tflops: Mapping[str, float]

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.config.rows_per_step * self.config.max_seq_length

    @property
    def exchange_s(self) -> float:
        """Seconds for the exchange of the adapter's gradients, once a step."""
        each = 4 if self.config.wire == "fp32" else 2
        sent = each * lora_parameters(self.facts, self.setup.lora_r, self.setup.lora_targets)
        return speedup.link_seconds(speedup.ring_bytes(sent, len(self.devices)), self.mbit)

    @property
    def hop_s(self) -> float:
        """Seconds for a row's hidden states from one node to the next."""
        sent = pipeline_split.hop_bytes(self.facts, self.config.max_seq_length, self.devices)
        return speedup.link_seconds(sent, self.mbit)

    @property
    def checkpoints(self) -> bool:
        return pipeline_split.checkpoints(self.setup, self.devices)


def ways(
    config: RunConfig,
    facts: Facts,
    setup: Setup,
    devices: Sequence[Device],
    *,
    mbit: float,
    tflops: Mapping[str, float],
) -> list[Way]:
    case = Case(config, facts, setup, devices, mbit, tflops)
    options = [_alike("held", case)]
    if config.holding.weights != "gpu":
        options.append(_alike("streamed", case))
    if config.holding.pipes != "off" and 1 < len(devices) <= facts.layers:
        options.append(_cut(case))
    return options


def _alike(kind: str, case: Case) -> Way:
    """Data parallel: all rows are shared, and each node computes all layers."""
    weights, facts, setup = "stream" if kind == "streamed" else "gpu", case.facts, case.setup
    needs = {one.name: memory(facts, replace(on_node(setup, one), weights=weights)).total for one in case.devices}
    notes = {}
    for one in case.devices:
        if needs[one.name] > USABLE * one.memory_bytes:
            notes[one.name] = "too small"
        elif weights == "stream" and place("stream", facts, setup, one).weights != "stream":
            notes[one.name] = "too little main memory"
    speed = None
    if case.tflops:
        each = pipeline_time.FLOP[kind == "streamed" or case.checkpoints]
        flop = each * case.tokens * (linear_parameters(facts) + facts.vocab * facts.hidden)
        compute_s = flop / sum(case.tflops[one.name] * 1e12 for one in case.devices)
        speed = case.tokens / (compute_s + case.exchange_s)
    return Way(
        name=kind,
        gb={name: count / GIB for name, count in needs.items()},
        notes=notes,
        ok=not notes,
        link_s=case.exchange_s,
        tokens_per_s=speed,
    )


def _cut(case: Case) -> Way:
    """A pipe of all nodes."""
    facts, setup, devices, tflops = case.facts, case.setup, case.devices, case.tflops
    most = pipeline_split.room_of(facts, setup, devices, facts.layers)
    speeds = [tflops[one.name] for one in devices] if tflops else [float(max(1, count)) for count in most]
    cost = pipeline_split.head_cost(facts)
    counts = pipeline_split.cut_layers(facts.layers, speeds, most, head_layers=cost if tflops else 0.0)
    shown = counts or pipeline_split.cut_layers(facts.layers, speeds) or []
    needs, notes, last = {}, {}, len(devices) - 1
    for at, (one, count) in enumerate(zip(devices, shown, strict=True)):
        own = on_node(setup, one)
        needs[one.name] = pipeline_split.stage_memory(
            facts, own, count, first=not at, last=at == last, ahead=last - at
        ).total
        notes[one.name] = f"{count} layers" if counts else "too small together"
    rows, speed = case.config.rows_per_step, None
    if tflops and counts:
        flop = pipeline_time.FLOP[case.checkpoints] * case.config.max_seq_length * linear_parameters(facts)
        layer_flop = flop / facts.layers
        pipe = pipeline_time.Pipe(
            speeds=[speed * 1e12 / layer_flop for speed in speeds],
            counts=counts,
            head_layers=cost,
            hop_s=case.hop_s,
            at_once=setup.micro_batch,
            checkpoints=case.checkpoints,
        )
        speed = case.tokens / (pipe.seconds(rows) + case.exchange_s)
    return Way(
        name="cut",
        gb={name: count / GIB for name, count in needs.items()},
        notes=notes,
        ok=counts is not None,
        link_s=rows * case.hop_s * min(last, 2) + case.exchange_s,  # in the middle both ways
        tokens_per_s=speed,
        bubble=pipeline_split.bubble(len(devices), ceil(rows / min(setup.micro_batch, rows))),
    )


def as_text(found: Sequence[Way], devices: Sequence[Device], source_gb: float) -> list[str]:
    """A table; `source_gb`: what the layers take where they are streamed from."""
    head = ["option", *(one.name for one in devices), "link, s a step", "tokens/s"]
    table = [head]
    for way in found:
        cells = [f"{way.gb[one.name]:.1f} GB{_note(way.notes.get(one.name, ''))}" for one in devices]
        speed = f"{way.tokens_per_s:.0f}" if way.tokens_per_s and way.ok else "-" if not way.ok else "not measured"
        table.append([way.name, *cells, f"{way.link_s:.1f}", speed])
    widths = [max(len(row[at]) for row in table) for at in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    notes = []
    if any(way.name == "streamed" for way in found):
        notes.append(f"streamed: the layers, {source_gb:.1f} GB, come from main memory or from files")
    if cut := next((way for way in found if way.bubble), None):
        notes.append(f"cut: each row goes through all machines; they spend {cut.bubble:.0%} of a step waiting")
    return [*lines, *notes]


def _note(text: str) -> str:
    return f", {text}" if text else ""


def source_gb(facts: Facts, setup: Setup) -> float:
    return layer_bytes(facts, setup) / GIB
