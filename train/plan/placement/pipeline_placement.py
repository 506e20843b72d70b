"""Whether a model is cut over the nodes, and who gets which layers. Pure.

Where each can hold the base or stream it, nobody waits for anybody. Else those that cannot hold it form pipes, of as
few machines as can; whoever can hold it alone is in none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from train.plan.machines.nodes import Device, gb
from train.plan.model.catalogue import AnyFacts, Facts
from train.plan.model.memory import Memory, Setup, layer_bytes
from train.plan.placement import pipeline_split
from train.plan.placement.hold_or_stream import on_node
from train.plan.placement.pipeline_split import Room
from train.plan.settings.pipes import Group, parse_pipes


@dataclass(frozen=True, slots=True)
class Cut:
    """What each node of a pipe gets."""

    room: Room
    layers: Mapping[str, tuple[int, int]]
    counts: Mapping[Group, Sequence[int]]
    """Layers of each stage of a pipe: a machine with several cards has several."""
    memory: Mapping[str, Memory]
    why: str = ""
    lacking: str = ""
    """Which memory is missing."""


def room_of(facts: Facts, setup: Setup, devices: Sequence[Device]) -> Room:
    largest = max(layer_bytes(facts, on_node(setup, device)) // facts.layers for device in devices)
    holds = {device.name: pipeline_split.holds(facts, setup, device, facts.layers) for device in devices}
    return Room(facts.layers, largest, holds)


def groups(facts: Facts, setup: Setup, devices: Sequence[Device], streams: Sequence[str]) -> tuple[str, str]:
    """`pipes` of those that cannot hold the base, and why; off where that does not help, with what is missing.
    `streams`: who could stream it, but not beside a pipe."""
    room = room_of(facts, setup, devices)
    names = [device.name for device in devices]
    small = [name for name in names if room.missing([name])]
    if not small:
        return "off", ""

    def enough(some: Sequence[str]) -> bool:
        most = pipeline_split.room_of(facts, setup, stages_of(some, devices), room.layers)
        return min(most) > 0 and sum(most) >= room.layers

    pipes = fewest(small, room, enough)
    if not all(enough(group) for group in pipes):
        return "off", "" if len(small) < len(names) else too_small_together(small, room)
    # A machine with several cards that is named would be cut over its own; unnamed, each of them holds the base.
    pipes += [(device.name,) for device in devices if device.name not in small and device.processes == 1]
    why = f"{in_a_row([name for name in small if name not in streams])} can neither hold the base nor stream it"
    return ",".join("+".join(group) for group in pipes), why


def in_a_row(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"


def stages_of(group: Sequence[str], devices: Sequence[Device]) -> list[Device]:
    """A machine with several cards is as many stages, one behind the other."""
    by_name = {device.name: device for device in devices}
    return [by_name[name] for name in group for _ in range(by_name[name].processes)]


def staged(pipes: str, devices: Sequence[Device]) -> list[str]:
    """Nodes that hold the model with others, or cut over their own cards."""
    asked = parse_pipes(pipes)
    return [name for group in asked if len(stages_of(group, devices)) > 1 for name in group]


def too_small_together(names: Sequence[str], room: Room) -> str:
    if len(names) == 1:
        return ""
    if not (lacking := room.missing(names)):
        least = min(names, key=lambda name: room.of([name]))
        return f"{least} is too small for a part of it: leave it out"
    return f"together they hold {room.of(names)} of {room.layers} layers: {gb(lacking * room.layer_bytes)} are missing"


def fewest(names: Sequence[str], room: Room, enough: Callable[[Sequence[str]], bool]) -> list[Group]:
    """Pipes of as few machines as can hold the model, the roomiest first; who is left over joins the last one."""
    pipes: list[Group] = []
    members: list[str] = []
    for name in sorted(names, key=lambda name: -room.of([name])):
        members.append(name)
        if enough([other for other in names if other in members]):
            pipes.append(tuple(members))
            members = []
    if pipes and members:
        pipes[-1] += tuple(members)
    elif members:
        pipes = [tuple(members)]
    return [tuple(name for name in names if name in group) for group in pipes]


def cut(
    pipes: str,
    facts: AnyFacts | None,
    setup: Setup,
    devices: Sequence[Device],
    *,
    why: str,
    speeds: Mapping[str, float] | None = None,
) -> Cut | None:
    """The cut; None where no node shares the model with another. Where speeds are not known yet it follows the memory;
    the run measures them before it cuts."""
    asked = [group for group in parse_pipes(pipes) if len(stages_of(group, devices)) > 1]
    if not asked or not isinstance(facts, Facts):
        return None
    room = room_of(facts, setup, devices)
    holds: dict[str, int] = {}
    whole = Cut(room, {}, {}, {}, why)
    for group in asked:
        stages = stages_of(group, devices)
        most = pipeline_split.room_of(facts, setup, stages, facts.layers)
        if speeds:
            cost = pipeline_split.head_cost(facts)
            counts = pipeline_split.cut_layers(
                facts.layers, [speeds[part.name] for part in stages], most, head_layers=cost
            )
        else:
            counts = pipeline_split.cut_layers(facts.layers, [max(1, count) for count in most], most)
        if counts is None:
            held: Counter[str] = Counter()
            for part, count in zip(stages, most, strict=True):
                held[part.name] += count
            others = [device.name for device in devices if device.name not in group]
            lacking = pipeline_split.why_too_small(group, others, replace(room, holds=held))
            whole = replace(whole, lacking=lacking)
            continue
        layers, memory = spread(facts, setup, stages, counts)
        counted = {**whole.counts, group: counts}
        whole = replace(whole, layers={**whole.layers, **layers}, counts=counted, memory={**whole.memory, **memory})
        holds |= {name: max(c for part, c in zip(stages, counts, strict=True) if part.name == name) for name in group}
    planned = {name: max(count, holds.get(name, 0)) for name, count in room.holds.items()}
    return replace(whole, room=replace(room, holds=planned))


def spread(
    facts: Facts, setup: Setup, parts: Sequence[Device], counts: Sequence[int]
) -> tuple[dict[str, tuple[int, int]], dict[str, Memory]]:
    """The layers of each node of a pipe, and the memory of its stage that takes most."""
    layers: dict[str, tuple[int, int]] = {}
    needs: dict[str, Memory] = {}
    at, last = 0, len(parts) - 1
    for stage, (device, count) in enumerate(zip(parts, counts, strict=True)):
        held, behind = on_node(setup, device), last - stage
        need = pipeline_split.stage_memory(facts, held, count, first=stage == 0, last=not behind, ahead=behind)
        needs[device.name] = max(need, needs.get(device.name, need), key=lambda memory: memory.total)
        layers[device.name] = (layers.get(device.name, (at, 0))[0], at + count)
        at += count
    return layers, needs


def bubbles(pipes: str, rows: int) -> list[str]:
    """What it costs that the machines of a pipe wait for one another when a step begins and ends."""
    asked = parse_pipes(pipes)
    lines = []
    for group in (group for group in asked if len(group) > 1):
        rows_here, wanted = max(1, rows // len(asked)), pipeline_split.FULL_ROWS * len(group)
        if rows_here < wanted:
            now, then = pipeline_split.bubble(len(group), rows_here), pipeline_split.bubble(len(group), wanted)
            lines.append(
                f"{'+'.join(group)} wait for one another {now:.0%} of a step with {rows_here} rows in it; "
                f"rows_per_step={wanted * len(asked)} would make it {then:.0%}"
            )
    return lines
