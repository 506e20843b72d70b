"""Which ranks form pipes in this generation, and which layers each computes: decided alike on all ranks, before the
model is built."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from train.errors import BadInput
from train.models.hf import DTYPES
from train.models.load_streamed import quietly
from train.models.wrapper import class_of, text_of
from train.parallel.process_group import World
from train.parallel.row_takers import RowTakers, alone
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import AnyFacts, Facts
from train.plan.model.memory import Setup, layer_bytes
from train.plan.placement import pipeline_split
from train.plan.placement.decisions import Decisions
from train.plan.placement.pipeline_split import Room
from train.plan.settings.pipes import parse_pipes
from train.plan.settings.read_settings import RunConfig
from train.plan.speed.row_split import parse_speeds
from train.proof.model_in_parts import prove as prove_cut

HOLDS = "MOTLEY_HOLDS"
"""How many layers this node may hold, where the plan of a launch says so."""
TIMED = 3


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What a cut follows from; lists have one entry for each rank, in rank order."""

    names: Sequence[str]
    devices: Sequence[Device]
    facts: AnyFacts | None
    setup: Setup
    decided_before: Mapping[str, str]
    """What the run has decided so far."""


def arrange(
    config: RunConfig, decisions: Decisions, world: World, base: Path | None, cluster: Cluster
) -> tuple[RowTakers, list[str]]:
    """The pipes of this generation with the layers of each rank, and why so."""
    asked = parse_pipes(config.holding.pipes)
    if not asked or base is None:
        return alone(cluster.names), []
    model = _model_config(base)
    if not cluster.decided_before.get("cut_proven"):  # once for each run
        prove_cut(model)
    limits, speeds = _measure(config, decisions, world, model, cluster)
    room = Room(text_of(model).num_hidden_layers, _layer_bytes(cluster), dict(zip(cluster.names, limits, strict=True)))
    wanted = [tuple(process for name in group for process in _processes_of(name, cluster.names)) for group in asked]
    groups = pipeline_split.regroup([group for group in wanted if group], cluster.names, room)
    if not groups:
        raise BadInput(f"pipes: {pipeline_split.why_too_small(cluster.names, [], room)}")
    ranks = [tuple(cluster.names.index(name) for name in group) for group in groups]
    layers: list[tuple[int, int] | None] = [None] * len(cluster.names)
    for group in ranks:
        for rank, layers_of_rank in zip(group, _cut(group, room, speeds, cluster), strict=True):
            layers[rank] = layers_of_rank
    return RowTakers(tuple(cluster.names), tuple(ranks), tuple(layers)), [f"pipes {config.holding.pipes}: as set"]


def _processes_of(name: str, processes: Sequence[str]) -> list[str]:
    """A node's processes, or one of them; none where it is lost."""
    return [process for process in processes if name in (process, process.partition(":")[0])]


def _cut(group: tuple[int, ...], room: Room, speeds: Sequence[float], cluster: Cluster) -> list[tuple[int, int] | None]:
    if len(group) == 1:
        return [None]
    names = [cluster.names[rank] for rank in group]
    fitting = pipeline_split.room_of(
        cluster.facts, cluster.setup, [cluster.devices[rank] for rank in group], room.layers
    )
    most = [min(room.holds[name], count) for name, count in zip(names, fitting, strict=True)]
    cost = pipeline_split.head_cost(cluster.facts)
    counts = pipeline_split.cut_layers(room.layers, [speeds[rank] for rank in group], most, head_layers=cost)
    if counts is None:
        held = ", ".join(f"{name} {count}" for name, count in zip(names, most, strict=True))
        raise BadInput(
            f"pipes: {'+'.join(names)} cannot hold {room.layers} layers: {held}",
            fix="add a node, or use max_seq_length or lora_r that take less",
        )
    ends = [sum(counts[: at + 1]) for at in range(len(counts))]
    return [(end - count, end) for end, count in zip(ends, counts, strict=True)]


def _measure(
    config: RunConfig, decisions: Decisions, world: World, model: Any, cluster: Cluster
) -> tuple[list[int], list[float]]:
    """The layers that each rank can hold, and its speed: as its steps showed or else as set, if known of all."""
    known_speeds = parse_speeds(cluster.decided_before.get("stage_speeds") or config.speeds)
    speed, device = 0.0, cluster.devices[world.rank]
    if any(name not in known_speeds for name in cluster.names):
        speed = layer_speed(model, decisions.precision, device.device, config.max_seq_length)
    limit = os.environ.get(HOLDS) or pipeline_split.holds(
        cluster.facts, cluster.setup, device, text_of(model).num_hidden_layers, ends=False
    )
    layers, measured = zip(*world.gather([int(limit), speed]), strict=True)
    if not speed:
        measured = tuple(known_speeds.get(name, 1.0) for name in cluster.names)
    return list(layers), list(measured)


def layer_speed(model: Any, precision: str, device: str, length: int) -> float:
    """Rows per second through one layer of the model, forward and backward, with random weights."""
    config = copy.deepcopy(model)
    text = text_of(config)
    text.num_hidden_layers, text.vocab_size, text.pad_token_id = 1, 8, None
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:1]
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    small = quietly(class_of(config).from_pretrained, None, config=config, state_dict={}, dtype=DTYPES[precision])
    layer = small.get_decoder().requires_grad_(False).to(device)
    with torch.device(device):
        hidden = torch.zeros(1, length, text.hidden_size, dtype=DTYPES[precision], requires_grad=True)
    best_s = float("inf")
    for _ in range(TIMED):
        start = time.perf_counter()
        layer(inputs_embeds=hidden, use_cache=False)[0].sum().backward()
        if device != "cpu":
            torch.cuda.synchronize(device)
        best_s = min(best_s, time.perf_counter() - start)
    return 1 / best_s


def _model_config(base: Path) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(base, local_files_only=True, trust_remote_code=False)


def _layer_bytes(cluster: Cluster) -> int:
    facts = cluster.facts
    return layer_bytes(facts, cluster.setup) // facts.layers if isinstance(facts, Facts) else 0


def micro_batch(
    config: RunConfig, world: World, workers: RowTakers, row_length: int, decided_before: Mapping[str, str]
) -> tuple[int, str]:
    """Rows at a time, alike on all stages of a pipe: as set, else so small that all of them have something to do."""
    group = workers.group(world.rank)
    rows = pipeline_split.rows_at_once(config, row_length, len(workers.groups), len(group))
    rows = min(rows, int(decided_before.get("pipe_micro_batch", rows)))
    by_rank = world.gather(rows)
    return min(int(by_rank[rank]) for rank in group), "alike in all stages of a pipe"
