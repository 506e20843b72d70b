"""The ways in which nodes can train a model that is large for them, beside one another: what each takes on each node,
what travels, and how fast it is where the nodes' speeds are given. Pure.

Seconds on the link are those of one step over the slowest one. No speed is assumed: without `tflops`, what each node
computes with in this training, tokens per second stay open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from train.plan.estimate import pipeline_prediction
from train.plan.estimate.pipeline_time import FLOP
from train.plan.estimate.predict_and_cut import predict
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import Facts
from train.plan.model.memory import GIB, linear_parameters
from train.plan.placement import pipeline_split
from train.plan.placement.first_way_that_fits import cut_way, pipe_of_all
from train.plan.placement.fit import Case, Fit, Way, cut_by_speed, fit
from train.plan.placement.hold_or_stream import HELD, Place, place
from train.plan.speed import step_time
from train.plan.speed.step_time import Machine


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    name: str
    cells: Mapping[str, str]
    """What each node has: its memory where it computes, and its layers or the word that it is too small."""
    ok: bool
    link_s: float
    tokens_per_s: float | None
    bubble: float = 0.0


def compared(case: Case, tflops: Mapping[str, float]) -> list[Compared]:
    assert isinstance(case.facts, Facts)
    options = [held(case, tflops)]
    if case.config.holding.weights != "gpu":
        options.append(streamed(case, tflops))
    if case.config.holding.pipes != "off" and 1 < len(case.devices) <= case.facts.layers:
        options.append(cut(case, tflops))
    return options


def held(case: Case, tflops: Mapping[str, float]) -> Compared:
    whole = fit(case, Way(backend=case.alone, places=[HELD] * len(case.devices)))
    return alike("held", case, whole, {}, tflops)


def streamed(case: Case, tflops: Mapping[str, float]) -> Compared:
    all_stream = fit(case, replace(cut_way(case, "off"), places=[Place("stream")] * len(case.devices)))
    setup = case.setup("hf")
    lacking = {
        device.name: "too little main memory"
        for device in case.devices
        if place("stream", case.facts, setup, device).weights != "stream"
    }
    return alike("streamed", case, all_stream, lacking, tflops)


def alike(name: str, case: Case, fitted: Fit, lacking: Mapping[str, str], tflops: Mapping[str, float]) -> Compared:
    """Data parallel: all rows are shared, and each node computes all layers."""
    notes = {**lacking, **{node.device.name: "too small" for node in fitted.nodes if not node.fits}}
    flop = flop_of_row(case, again=name == "streamed" or pipeline_split.checkpoints(fitted.setup, case.devices))
    rates = {one.name: tflops.get(one.name, 1.0) * 1e12 / flop for one in case.devices}
    whole = predict(fitted, [Machine(name, rate, case.mbit) for name, rate in rates.items()], case.config).together
    return Compared(
        name=name,
        cells={one.device.name: cell(one.memory.total, notes.get(one.device.name, "")) for one in fitted.nodes},
        ok=not notes,
        link_s=whole.sync_s,
        tokens_per_s=tokens(case) / whole.step_s if tflops else None,
    )


def cut(case: Case, tflops: Mapping[str, float]) -> Compared:
    """One pipe of all nodes: each computes some of the layers of every row."""
    assert isinstance(case.facts, Facts)
    config, facts, devices = case.config, case.facts, case.devices
    fitted = fit(case, pipe_of_all(case))
    layer_flop = flop_of_layers(case, again=pipeline_split.checkpoints(fitted.setup, devices)) / facts.layers
    speeds = {one.name: tflops[one.name] * 1e12 / layer_flop for one in devices} if tflops else {}
    fitted = cut_by_speed(fitted, speeds) if tflops else fitted
    assert fitted.cut
    exchange_s = fitted.seconds[config.wire if config.wire in step_time.WIRE_BYTES else "bf16"]
    speed = None
    if tflops and not fitted.cut.lacking:
        speed = tokens(case) / pipeline_prediction.predict(fitted, config, speeds, {}).together.step_s
    rows, hops = config.rows_per_step, min(len(devices) - 1, 2)  # in the middle both ways
    hop_s = step_time.link_seconds(pipeline_split.hop_bytes(facts, config.max_seq_length, devices), case.mbit)
    layers = {name: f"{end - first} layers" for name, (first, end) in fitted.cut.layers.items()}
    return Compared(
        name="cut",
        cells={
            one.device.name: cell(one.memory.total, layers[one.device.name]) if layers else "too small together"
            for one in fitted.nodes
        },
        ok=not fitted.cut.lacking,
        link_s=rows * hop_s * hops + exchange_s,
        tokens_per_s=speed,
        bubble=pipeline_split.bubble(len(devices), ceil(rows / min(fitted.setup.micro_batch, rows))),
    )


def tokens(case: Case) -> int:
    """The tokens of a step."""
    return case.config.rows_per_step * case.config.max_seq_length


def flop_of_layers(case: Case, *, again: bool) -> float:
    assert isinstance(case.facts, Facts)
    return FLOP[again] * case.config.max_seq_length * linear_parameters(case.facts)


def flop_of_row(case: Case, *, again: bool) -> float:
    assert isinstance(case.facts, Facts)
    head = FLOP[again] * case.config.max_seq_length * case.facts.vocab * case.facts.hidden
    return flop_of_layers(case, again=again) + head


def cell(size: int, note: str) -> str:
    return f"{size / GIB:.1f} GB" + (f", {note}" if note else "")


def as_text(options: Sequence[Compared], devices: Sequence[Device], source_gb: float) -> list[str]:
    """Makes the table for a person; `source_gb`: what the layers take where they are streamed from."""
    head = ["option", *(one.name for one in devices), "link, s a step", "tokens/s"]
    table = [head]
    for option in options:
        speed = "-" if not option.ok else f"{option.tokens_per_s:.0f}" if option.tokens_per_s else "not measured"
        table.append([option.name, *(option.cells[one.name] for one in devices), f"{option.link_s:.1f}", speed])
    widths = [max(len(row[at]) for row in table) for at in range(len(head))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in table]
    notes = []
    if any(option.name == "streamed" for option in options):
        notes.append(f"streamed: the layers, {source_gb:.1f} GB, come from main memory or from files")
    if pipe := next((option for option in options if option.bubble), None):
        notes.append(f"cut: each row goes through all machines; they spend {pipe.bubble:.0%} of a step waiting")
    return [*lines, *notes]
