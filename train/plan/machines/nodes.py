"""The machines that take part: what a launch finds out about them, and what they are to a plan."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from train.plan.machines.architectures import BF16_SINCE
from train.plan.machines.facts import Card, NodeFacts
from train.plan.model.sources import BaseModel
from train.plan.model.verdict import Verdict

COUNTED_ALIKE = (
    *("model", "max_seq_length", "method", "lora_r", "lora_targets", "load_in", "gradient_checkpointing"),
    *("hidden_size", "layers", "heads", "kv_heads", "intermediate_size", "vocab_size", "tie_embeddings"),
)
"""Settings in which two runs must agree for one's speeds to predict the other's."""


@dataclass(frozen=True, slots=True)
class Device:
    """What one process computes on."""

    name: str
    """The name of the node."""
    device: str
    """cpu, cuda or cuda:N."""
    memory_bytes: int
    bf16: bool = True
    unsloth: bool = True
    bitsandbytes: bool = True
    base_bytes: int = 0
    """Size of the base's files, where they are here already."""
    main_bytes: int = 0
    """Main memory beside a GPU, for one process; 0 where the GPU's memory is the main memory, as on a GB10."""
    weights: str = ""
    """Where the base is held (gpu or stream), if that is set for this node alone."""
    processes: int = 1
    """How many processes of this kind the node has: one for each of its cards."""
    capability: str = ""
    """The compute capability of its card, where it has been looked at."""
    alike: Sequence[str] = ()
    """Pairs of capabilities that are known to step to the same bits."""

    @property
    def is_gpu(self) -> bool:
        return self.device != "cpu"


def all_gpus(devices: Iterable[Device]) -> bool:
    return all(device.is_gpu for device in devices)


def names_of(devices: Iterable[Device]) -> str:
    return ", ".join(sorted({device.name for device in devices}))


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchFacts:
    """All that a launch knows before it decides; node by node in the cluster's order."""

    addresses: Mapping[str, str]
    nodes: Mapping[str, NodeFacts]
    versions: Mapping[str, dict[str, str | None]]
    processes: Mapping[str, int] = field(default_factory=dict)
    """How many processes each node has, where the inventory sets that."""
    weights: Mapping[str, str] = field(default_factory=dict)
    """gpu or stream, where the inventory sets it."""
    off: Mapping[str, str] = field(default_factory=dict)
    """Nodes that were to take part and do not answer, and why."""
    launched: Mapping[str, Any] = field(default_factory=dict)
    """Runs that were launched from here, as launch.json has them; by this computer's own record."""
    proof_mbit: float = 0.0
    """What bootstrap's proof measured."""
    calibrated: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    """Node → why it could not be asked how fast it computes."""
    code: str = ""
    """Hash of the training package here."""
    verdict: Verdict | None = None
    """What a miniature of the model has shown on the head; None where there is no such, or nobody could try."""
    files: Callable[[BaseModel], tuple[Mapping[str, Any], int]]
    """A model's config.json and the size of its files, in a folder here or at the hub."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanNode:
    """One machine that takes part: what was found out about it, and what it computes on."""

    address: str
    facts: NodeFacts
    device: Device

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def cards(self) -> Sequence[Card]:
        """The cards that compute: a process takes the card of its number, counted along the bus."""
        return self.facts.cards[: self.device.processes]

    @property
    def computes_on(self) -> str:
        if not self.device.is_gpu:
            return f"CPU, {self.facts.cores} cores"
        names = [card.short_name for card in self.cards]
        return " + ".join(f"{len(list(same))} × {name}" for name, same in itertools.groupby(names)).replace("1 × ", "")


def nodes_of(facts: LaunchFacts, device: str = "auto") -> list[PlanNode]:
    return [
        PlanNode(address=address, facts=facts.nodes[name], device=device_of(name, facts, device))
        for name, address in facts.addresses.items()
    ]


def device_of(name: str, facts: LaunchFacts, asked: str) -> Device:
    """What a process of this node computes on, as its environment can; `asked`: the run's setting."""
    node, versions = facts.nodes[name], facts.versions[name]
    gpu = asked != "cpu" and bool(versions.get("cuda")) and bool(node.cards)
    count = int(facts.processes.get(name) or (len(node.cards) if gpu else 1))
    cards = node.cards[:count] if gpu else ()
    in_main_memory = any(card.bytes == node.memory_bytes for card in cards)
    return Device(
        name,
        "cuda" if gpu else "cpu",
        min(card.bytes for card in cards) if gpu else node.memory_bytes // count,
        # where the driver does not say it of a card, the node looks again before it trains
        bf16=all(float(card.capability or BF16_SINCE) >= BF16_SINCE for card in cards),
        unsloth=bool(versions.get("unsloth")),
        bitsandbytes=gpu,  # a node that computes on its CPU has the set without it
        main_bytes=0 if in_main_memory else node.memory_bytes // count,
        weights=facts.weights.get(name, ""),
        processes=count,
    )


def link(nodes: list[PlanNode], proof_mbit: float) -> tuple[float, str]:
    """Mbit/s of the slowest route between two nodes, and how that is known."""
    if proof_mbit:
        return proof_mbit, "measured by bootstrap's proof"
    promised = {node.name: node.facts.route.mbit for node in nodes if node.facts.route.mbit}
    if not promised:
        return 1000.0, "assumed: no network card reports its speed"
    slowest = min(promised, key=lambda name: promised[name])
    return float(promised[slowest]), f"as {slowest}'s network card says"


@dataclass(frozen=True)
class Speeds:
    """What is known of how fast the nodes compute."""

    rows_per_s: dict[str, float] = field(default_factory=dict)
    """Rows per second of each node; layers of a row, of a node that has a part of the model."""
    fixed_s: dict[str, float] = field(default_factory=dict)
    """Seconds that a step takes on each node whatever its rows; only where that was measured."""
    why: str = "not measured yet"


def speeds(
    nodes: list[PlanNode],
    settings: Mapping[str, Any],
    calibrated: Mapping[str, Mapping[str, float]] | None = None,
    counted: Iterable[str] = (),
    *,
    streams: Collection[str] = (),
    staged: Collection[str] = (),
) -> Speeds:
    """The speeds of the newest run that computed the same, else as `train calibrate` measured them. `counted`: what of
    the recipe's own a speed depends on; `streams`: the nodes whose base is streamed; `staged`: those that have a part
    of the model, of which layers of a row per second count."""
    alike = [name for name in (*COUNTED_ALIKE, *counted) if name != "weights"]
    rates: dict[str, float] = {}
    fixed: dict[str, float] = {}
    sources: list[str] = []
    for node in nodes:
        for run in node.facts.measured:
            before, streamed = run.launched.get("all", {}), run.launched.get("streams", ())
            if not before or (node.name in streamed) != (node.name in streams):
                continue
            measured = run.layer_speeds if node.name in staged else run.speeds
            if measured and all(before.get(name) == settings.get(name) for name in alike):
                for process, rate in measured.items():
                    name = process.partition(":")[0]
                    held_alike = (name in streamed) == (name in streams)
                    if held_alike and (name in staged) == (node.name in staged):
                        rates.setdefault(name, rate)
                sources.append(run.run)
                break
    for name, speed in (calibrated or {}).items():
        if name not in rates:
            rates[name], fixed[name] = speed["rows_per_s"], speed["fixed_s"]
            sources.append("a calibration")
    times = {node.name: 1 if node.name in staged else node.device.processes for node in nodes}
    by_node = {name: rates[name] * count for name, count in times.items() if name in rates}
    return Speeds(by_node, fixed, f"measured in {', '.join(dict.fromkeys(sources))}") if by_node else Speeds()


def gb(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"
