"""What a run will take whose model is cut, where the speeds of its stages are known. Pure.

A pipe takes as long as its schedule played with them; whoever holds the whole model beside it takes rows by its own
speed. Each row goes to the worker that would have it done first, as the shares of a run come to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from train.plan.estimate.pipeline_time import FLOP, Pipe
from train.plan.model.catalogue import Facts
from train.plan.placement import pipeline_split
from train.plan.placement.fit import Fit, cut_by_speed
from train.plan.placement.pipeline_placement import stages_of
from train.plan.settings.pipes import Group, parse_pipes
from train.plan.settings.read_settings import RunConfig
from train.plan.speed import step_time
from train.plan.speed.prediction import Figures, Prediction

WORTH = 1.1
"""Times as fast as streaming, from where a cut is worth that machines wait for one another."""
Seconds = Callable[[int], float]
"""Seconds that a worker takes for so many rows of a step."""


def predict(fitted: Fit, config: RunConfig, speeds: Mapping[str, float], fixed_s: Mapping[str, float]) -> Prediction:
    """What predict_and_cut.py says, for a cut model. `speeds`: layers of a row per second of a stage, else rows."""
    asked, names = parse_pipes(fitted.pipes), [node.device.name for node in fitted.nodes]
    groups = [*asked, *((name,) for name in names if not any(name in group for group in asked))]
    seconds = [_seconds(fitted, config, group, speeds) for group in groups]
    counts = split(config.rows_per_step, seconds)
    compute_s = max(of(count) for of, count in zip(seconds, counts, strict=True) if count)
    compute_s += max(fixed_s.values(), default=0.0)
    wire = step_time.wire_for(fitted.seconds["fp32"], config.wire)
    shares = {group[0]: count for group, count in zip(groups, counts, strict=True)}
    whole = Figures.of(step_time.Estimate(shares, compute_s, fitted.seconds[wire]))
    return Prediction(wire=wire, together=whole, best=whole)


def faster_than_streamed(
    cut: Fit, config: RunConfig, streaming: Mapping[str, float], step_s: float
) -> tuple[Fit, dict[str, float]] | None:
    """The cut over all nodes by their speeds, and these in layers of a row per second, where a step takes clearly less
    than the `step_s` of streaming; else None. `streaming`: rows per second of each node whose base is streamed."""
    if cut.lacking or not cut.ok or not isinstance(cut.facts, Facts):
        return None
    devices = [node.device for node in cut.nodes]
    layers = cut.facts.layers + pipeline_split.head_cost(cut.facts)
    # Who streams computes each layer forward twice.
    saved = FLOP[True] / FLOP[pipeline_split.checkpoints(cut.setup, devices)]
    speeds = {name: rate * layers * saved for name, rate in streaming.items()}
    by_speed = cut_by_speed(cut, speeds)
    if not by_speed.cut or by_speed.cut.lacking:
        return None
    whole = predict(by_speed, config, speeds, {}).together
    if whole.step_s * WORTH > step_s:
        return None
    why = f"{whole.step_s:.2f} s a step, where streaming the base would take {step_s:.2f} s"
    return replace(by_speed, cut=replace(by_speed.cut, why=why)), speeds


def rows_in_pipe(fitted: Fit, config: RunConfig, node: str) -> int:
    """How many rows go through this node's pipe at a time."""
    groups = parse_pipes(fitted.pipes)
    pipe = next(group for group in groups if node in group)
    count = len(stages_of(pipe, [one.device for one in fitted.nodes]))
    return pipeline_split.rows_at_once(config, config.max_seq_length, len(groups), count)


def _seconds(fitted: Fit, config: RunConfig, group: Group, speeds: Mapping[str, float]) -> Seconds:
    facts, cut = fitted.facts, fitted.cut
    assert cut and isinstance(facts, Facts)
    if group not in cut.counts:
        return lambda rows: rows / speeds[group[0]]
    devices = stages_of(group, [node.device for node in fitted.nodes])
    link_s = step_time.link_seconds(pipeline_split.hop_bytes(facts, config.max_seq_length, devices), fitted.link_mbit)
    pipe = Pipe(
        speeds=[speeds[one.name] for one in devices],
        counts=cut.counts[group],
        head_layers=pipeline_split.head_cost(facts),
        hop_s=link_s if len(group) > 1 else 0.0,  # from card to card it takes next to nothing
        at_once=rows_in_pipe(fitted, config, group[0]),
        checkpoints=pipeline_split.checkpoints(fitted.setup, devices),
    )
    return pipe.seconds


def split(rows: int, seconds: Sequence[Seconds]) -> list[int]:
    """Deals the rows of a step out, each to the worker that would have it done first."""
    counts = [0] * len(seconds)
    for _ in range(rows):
        counts[min(range(len(seconds)), key=lambda at: (seconds[at](counts[at] + 1), at))] += 1
    return counts
