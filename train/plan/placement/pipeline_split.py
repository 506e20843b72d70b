"""A model cut over machines that cannot hold it alone: who computes which of its layers. Pure, and without torch.

`pipes` names the machines: a+b is a pipe of two, through which each row goes; what stands alone holds the whole model.
Each pipe, and each machine alone, is a worker: it takes rows of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from train.plan.machines.nodes import Device, gb
from train.plan.model.catalogue import AnyFacts, Facts
from train.plan.model.counts import counts_of
from train.plan.model.memory import (
    USABLE,
    Memory,
    Setup,
    linear_parameters,
    lora_parameters,
    memory,
    of_tokens,
    recomputes,
)  # fmt: skip
from train.plan.placement.hold_or_stream import on_node
from train.plan.placement.micro_batch import on_cpu
from train.plan.settings.pipes import Group
from train.plan.settings.read_settings import RunConfig

FULL_ROWS = 8
"""Micro-batches for each stage of a pipe: with fewer its machines wait more for one another than is worth it."""


def cut_layers(
    layers: int, speeds: Sequence[float], most: Sequence[int] = (), *, head_layers: float = 0.0
) -> list[int] | None:
    """How many layers each stage computes, the slowest as fast as can be: each layer to the stage that would have it
    done earliest and can hold it. At least one each. `most`: what each can hold; `head_layers`: what the head costs the
    last one, in layers. None where they cannot hold all of them together.
    """
    stages = len(speeds)
    room = list(most) or [layers] * stages
    if layers < stages or min(room) < 1 or sum(room) < layers:
        return None
    counts, extra = [1] * stages, [0.0] * (stages - 1) + [head_layers]
    for _ in range(layers - stages):
        able = [stage for stage in range(stages) if counts[stage] < room[stage]]
        counts[min(able, key=lambda stage: ((counts[stage] + 1 + extra[stage]) / speeds[stage], stage))] += 1
    return counts


def stage_seconds(counts: Sequence[int], speeds: Sequence[float], head_layers: float = 0.0) -> list[float]:
    """Seconds that one row takes in each stage; speeds in layers of a row per second."""
    extra = [0.0] * (len(counts) - 1) + [head_layers]
    return [(count + more) / speed for count, more, speed in zip(counts, extra, speeds, strict=True)]


def bubble(stages: int, micro_batches: int) -> float:
    """Part of a step in which a stage waits, if all take the same time for a micro-batch."""
    return (stages - 1) / (micro_batches + stages - 1)


def rows_at_once(config: RunConfig, row_length: int, workers: int, count: int) -> int:
    """Rows of a micro-batch: as set, else so few that all stages of a pipe have something to do."""
    rows = max(1, config.rows_per_step // workers // (FULL_ROWS * count))
    return config.micro_batch or min(on_cpu(row_length)[0], rows)


def hop_bytes(facts: Facts, row_length: int, devices: Sequence[Device]) -> int:
    """Bytes of a row's hidden states, from one node to the next; a CPU has them in fp32."""
    return (2 if all(device.is_gpu for device in devices) else 4) * row_length * facts.hidden


def checkpoints(setup: Setup, devices: Sequence[Device]) -> bool:
    """Whether a backward pass computes forward again: by itself on a GPU and not on a CPU."""
    return any(device.is_gpu for device in devices) if setup.checkpointing is None else setup.checkpointing


def head_cost(facts: AnyFacts | None) -> float:
    """What the scores over the vocabulary cost, in layers."""
    if not isinstance(facts, Facts):
        return 0.0
    return facts.vocab * facts.hidden * facts.layers / linear_parameters(facts)


# -- memory ------------------------------------------------------------------------------------------------------------


def stage_memory(facts: Facts, setup: Setup, layers: int, *, first: bool, last: bool, ahead: int) -> Memory:
    """What a stage takes where it computes; `ahead`: micro-batches that are in the stages behind it. The adapter of
    layers elsewhere, and the optimizer of a graphics card, are in main memory."""
    whole = memory(replace(facts, layers=layers), setup)
    counts, wide = counts_of(facts), 4 if setup.load_in == "32bit" else 2
    both = counts.table + counts.output
    base = whole.base - wide * (both - counts.table * first - (counts.output or counts.table) * last)
    if setup.device == "cuda":
        adapter, optimizer = whole.adapter, 0
    else:
        adapter = 4 * lora_parameters(facts, setup.lora_r, setup.lora_targets)
        optimizer = setup.optimizer_bytes * adapter // 4
    return replace(
        whole,
        base=base,
        adapter=adapter,
        gradients=adapter,
        optimizer=optimizer,
        activations=whole.activations + ahead * kept_ahead(facts, setup, layers),
        logits=whole.logits if last else 0,
    )


def kept_ahead(facts: Facts, setup: Setup, layers: int) -> int:
    """Bytes kept of a micro-batch that went on and whose gradient has not come back."""
    if recomputes(setup):
        return of_tokens((layers + 1) * facts.hidden, setup)
    return memory(replace(facts, layers=layers), setup).activations


def most_layers(facts: Facts, setup: Setup, card_bytes: int, *, first: bool, last: bool, ahead: int) -> int:
    """The most layers that a stage can hold here; 0 if not even one fits."""

    def fits(count: int) -> bool:
        need = stage_memory(facts, setup, count, first=first, last=last, ahead=ahead).total
        return need <= USABLE * card_bytes

    return next((count for count in range(facts.layers, 0, -1) if fits(count)), 0)


def holds(facts: AnyFacts | None, setup: Setup, device: Device, layers: int, *, ends: bool = True) -> int:
    """The most layers that one node can hold, with the embeddings and the head or without; all of them, if it can hold
    the whole model. All where nothing is known of the model."""
    if not isinstance(facts, Facts):
        return layers
    here = on_node(setup, device)
    if memory(facts, here).total <= USABLE * device.memory_bytes:
        return layers
    return min(layers, most_layers(facts, here, device.memory_bytes, first=ends, last=ends, ahead=1))


def room_of(facts: AnyFacts | None, setup: Setup, devices: Sequence[Device], layers: int) -> list[int]:
    """The most layers that each of these can hold, as stages in this order."""
    if not isinstance(facts, Facts):
        return [layers] * len(devices)
    most, count = [], len(devices)
    for stage, device in enumerate(devices):
        here = on_node(setup, device)
        first, last = stage == 0, stage == count - 1
        most.append(most_layers(facts, here, device.memory_bytes, first=first, last=last, ahead=count - stage - 1))
    return most


# -- who works together ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Room:
    """What decides who can train together: layers of the model, and how many each node can hold."""

    layers: int
    layer_bytes: int
    holds: Mapping[str, int]

    def of(self, names: Sequence[str]) -> int:
        return sum(self.holds.get(name, self.layers) for name in names)

    def missing(self, names: Sequence[str]) -> int:
        return max(0, self.layers - self.of(names))


def regroup(asked: Sequence[Group], present: Sequence[str], room: Room) -> list[Group]:
    """The pipes of those that are here. Who has lost its others joins another such pipe, else a whole one; nodes that
    nobody named stand alone, if they can hold the model, else they join too. Empty where all together are too few."""
    named = {name for group in asked for name in group}
    wanted = [tuple(name for name in group if name in present) for group in asked]
    wanted += [(name,) for name in present if name not in named]
    whole = [group for group in wanted if group and not room.missing(group)]
    rest = [name for group in wanted if group not in whole for name in group]
    while rest and room.missing(rest) and whole:
        joined = whole.pop(min(range(len(whole)), key=lambda at: (room.of(whole[at]), at)))
        rest += joined
    if rest and room.missing(rest):
        return []
    order = {name: at for at, name in enumerate(dict.fromkeys([*(n for g in asked for n in g), *present]))}
    pipe = [tuple(sorted(rest, key=lambda name: order[name]))] if rest else []
    return sorted([*whole, *pipe], key=lambda group: order[group[0]])


def why_too_small(present: Sequence[str], absent: Sequence[str], room: Room) -> str:
    """Nobody can train: how much memory is missing, and which nodes would do. Empty where there is enough."""
    if not (lacking := room.missing(present)):
        return ""
    enough = [name for name in absent if room.holds.get(name, 0) >= lacking]
    who = " or ".join(enough) if enough else " and ".join(absent)
    held = f"{' and '.join(present)} hold {room.of(present)} of {room.layers} layers"
    return f"{held}: {gb(lacking * room.layer_bytes)} are missing, waiting for {who or 'another node'}"
