"""Whether a model fits the nodes, what travels between them in a step, and what they do together. Pure.

`./motley plan --cards` and a launch compute it alike.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from train.errors import BadInput
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import AnyFacts, Facts
from train.plan.model.counts import counts_of
from train.plan.model.memory import (
    ALL_LINEAR,
    Memory,
    Setup,
    changes_that_fit,
    fits,
    largest_micro_batch,
    lora_parameters,
    memory,
    parameters,
    trained_parameters,
)
from train.plan.model.weight_files import FAMILIES
from train.plan.placement.forms import forms
from train.plan.placement.pipeline_placement import Cut, cut, resolve, staged
from train.plan.placement.streaming import HELD, Place, on_node, place
from train.plan.settings.config import RunConfig, Settings
from train.plan.settings.pipes import check_names, parse_pipes
from train.plan.speed import prediction, speedup
from train.plan.speed.prediction import MachinesPrediction

CHECKPOINTING = {"auto": None, "true": True, "unsloth": True, "false": False}
NAMES = ("backend", "precision", "load_in", "gradient_checkpointing")
FLAGS = {"row_length": "max_seq_length", "checkpointing": "gradient_checkpointing", "answers": "answers_at_once"}
OPTIMIZER_BYTES = {"adamw": 8, "adamw8bit": 2, "sgd": 4, "muon": 5}
"""Muon keeps one number for a weight of a matrix, and has AdamW for the others."""
MUON_SENDS = 1.5
"""Traffic with Muon, in times that of the gradients: each update of a matrix goes from its owner to all as well."""
FEWER = ("q_proj", "v_proj")


@dataclass(frozen=True)
class Decisions:
    """What `auto` becomes, with a reason each."""

    backend: str
    precision: str
    load_in: str
    gradient_checkpointing: str
    whys: Mapping[str, str]
    """What was decided → why; empty where it is as set."""

    @property
    def reasons(self) -> list[str]:
        return [f"{what}: {why or 'as set'}" for what, why in self.whys.items()]

    def as_dict(self) -> Settings:
        return {name: value for name, value in asdict(self).items() if name != "whys"}


@dataclass(frozen=True, slots=True)
class NodeFit:
    device: Device
    memory: Memory
    fits: bool
    micro_batch_up_to: int
    fix: Settings | None
    place: Place = HELD
    fix_streams: bool = False
    """Whether it fits with them where its layers are streamed then, which is chosen by itself."""

    @property
    def fix_text(self) -> str:
        if self.fix is None:
            return "no setting makes it fit; choose a smaller model, or leave this node out"
        words = [f"{name}={str(value).lower()}" for name, value in self.fix.items()]
        how = "streamed from its files in each step" if self.place.from_files else "streamed"
        return "would fit with " + ", ".join([*words, *[how] * self.fix_streams])


@dataclass(frozen=True, slots=True)
class Fit:
    model: str
    facts: AnyFacts | None
    """None where nothing is known of the model before it is built: no weights and no bytes are counted then."""
    setup: Setup
    decisions: Decisions
    nodes: list[NodeFit]
    link_mbit: float
    sends: float = 1.0
    """Numbers that travel for each trained weight, beside what an exchange of gradients takes."""
    cut: Cut | None = None
    """How some nodes hold the model together, where they do."""
    pipes: str = "off"
    lacking: str = ""
    """What is missing to hold the model together."""

    @property
    def sent_weights(self) -> int:
        return int(self.trained_weights * self.sends)

    @property
    def trained_weights(self) -> int:
        return trained_parameters(self.facts, self.setup) if self.facts else 0

    @property
    def traffic(self) -> dict[str, int]:
        """Bytes that each node sends per step, by wire."""
        count = len(self.nodes)
        return {
            wire: int(speedup.ring_bytes(self.sent_weights * size, count)) for wire, size in speedup.WIRE_BYTES.items()
        }

    @property
    def seconds(self) -> dict[str, float]:
        return {wire: speedup.link_seconds(sent, self.link_mbit) for wire, sent in self.traffic.items()}

    @property
    def ok(self) -> bool:
        return all(node.fits for node in self.nodes)


def placed(
    config: RunConfig, decisions: Decisions, node: Device, facts: AnyFacts | None
) -> tuple[RunConfig, list[str]]:
    """The settings of one node, with where its base is in place of `auto`, and why."""
    setup = setup_for(config, decisions.gradient_checkpointing, decisions.load_in)
    where = HELD if parse_pipes(config.holding.pipes) else place(config.holding.weights, facts, setup, node)
    return config.held(weights=where.weights), [f"weights {where.weights}: {where.why}"] if where.why else []


def setup_for(config: RunConfig, checkpointing: str, load_in: str = "16bit") -> Setup:
    """What memory depends on, of a run with these settings."""
    held = config.holding
    return Setup(
        load_in=load_in,
        lora_r=held.lora_r,
        lora_targets=tuple(held.lora_targets.split(",")),
        row_length=config.max_seq_length,
        micro_batch=config.micro_batch or 1,
        checkpointing=CHECKPOINTING[checkpointing],
        offloads=checkpointing == "unsloth",
        optimizer_bytes=OPTIMIZER_BYTES[config.optimizer],
        full=held.full,
        dora=held.dora,
        first=held.lora_init != "default",
        dropped=held.lora_dropout > 0,
        drawn=held.lora_dropout > 0 or held.neftune_alpha > 0,
        answers=config.answers_side_by_side,
        has_server=config.has_server,
        lines=config.lines_of_row,
    )


def with_pipes(config: RunConfig, devices: Sequence[Device], facts: AnyFacts | None) -> tuple[RunConfig, str]:
    """The settings with `pipes` as it will be, and why."""
    setup = setup_for(config, config.gradient_checkpointing, forms(config, facts, devices)[-1])
    pipes, why = resolve(config, facts, setup, devices)
    check_names(parse_pipes(pipes), [device.name for device in devices])
    return config.held(pipes=pipes), why


def fit(
    config: RunConfig,
    decisions: Decisions,
    devices: Sequence[Device],
    *,
    model: str,
    facts: AnyFacts | None,
    mbit: float,
    why_cut: str = "",
) -> Fit:
    setup = setup_for(config, decisions.gradient_checkpointing, decisions.load_in)
    if isinstance(facts, Facts) and (facts.counts or facts.family in FAMILIES):
        require_targets(setup.lora_targets, counts_of(facts).adapters)
    places = [place(config.holding.weights, facts, setup, device) for device in devices]
    may = config.holding.weights == "auto" and not parse_pipes(config.holding.pipes)
    nodes = [
        fit_node(facts, setup, device, where, may_stream=may) for device, where in zip(devices, places, strict=True)
    ]
    found = cut(config, facts, setup, devices, why_cut)
    return Fit(
        model=model,
        facts=facts,
        setup=setup,
        decisions=decisions,
        nodes=as_stages(nodes, config.holding.pipes, found),
        link_mbit=mbit,
        sends=MUON_SENDS if config.optimizer == "muon" else 1.0,
        cut=found,
        pipes=config.holding.pipes,
        lacking=found.lacking if found else why_cut * (config.holding.pipes == "off"),
    )


def require_targets(targets: Sequence[str], known: Collection[str]) -> None:
    if targets != ALL_LINEAR and (unknown := {name for name in targets if name.rpartition(".")[2] not in known}):
        raise BadInput(
            f"lora_targets: no layer is called {', '.join(sorted(unknown))}", fix=f"known: {' '.join(known)}"
        )


def cut_by_speed(found: Fit, config: RunConfig, speeds: Mapping[str, float]) -> Fit:
    """The fit as a run cuts it that knows how fast its stages are. `speeds`: layers of a row per second."""
    assert found.cut
    devices = [node.device for node in found.nodes]
    again = cut(config.held(pipes=found.pipes), found.facts, found.setup, devices, found.cut.why, speeds=speeds)
    return replace(found, cut=again, nodes=as_stages(found.nodes, found.pipes, again))


def as_stages(nodes: list[NodeFit], pipes: str, found: Cut | None) -> list[NodeFit]:
    members = staged(pipes, [node.device for node in nodes])
    return [as_stage(node, found) if found and node.device.name in members else node for node in nodes]


def as_stage(node: NodeFit, found: Cut) -> NodeFit:
    name = node.device.name
    if name not in found.layers:
        return replace(node, fits=False, fix=None, place=HELD)
    return replace(node, memory=found.memory[name], fits=True, micro_batch_up_to=1, fix=None, place=HELD)


def fit_node(
    facts: AnyFacts | None, setup: Setup, device: Device, where: Place, *, may_stream: bool = False
) -> NodeFit:
    if facts is None:
        nothing = Memory(base=0, adapter=0, gradients=0, optimizer=0, activations=0, logits=0, runtime=0)
        return NodeFit(device=device, memory=nothing, fits=True, micro_batch_up_to=0, fix=None, place=where)
    own = replace(on_node(setup, device), weights=where.weights)
    enough = fits(facts, own, device.memory_bytes)
    changes, streams = (None, False) if enough else changes_of(facts, own, device, where, may_stream=may_stream)
    return NodeFit(
        device=device,
        memory=memory(facts, own),
        fits=enough,
        micro_batch_up_to=largest_micro_batch(facts, own, device.memory_bytes),
        fix=changes and {FLAGS.get(name, name): in_words(value) for name, value in changes.items()},
        place=where,
        fix_streams=streams,
    )


def changes_of(
    facts: AnyFacts, own: Setup, device: Device, where: Place, *, may_stream: bool
) -> tuple[dict[str, Any] | None, bool]:
    """Settings that make it fit where it is, else where its layers are streamed; and whether they are."""
    if changes := changes_that_fit(facts, own, device.memory_bytes):
        return changes, False
    if where.from_files:
        return {"load_in": where.from_files}, True
    changes = changes_that_fit(facts, replace(own, weights="stream"), device.memory_bytes) if may_stream else None
    if changes and place("auto", facts, replace(own, **changes), device).weights == "stream":
        return changes, True
    return None, False


def in_words(value: Any) -> Any:
    return ",".join(value) if isinstance(value, tuple) else value


def to_json(fit: Fit) -> dict[str, Any]:
    return {
        "ok": fit.ok,
        "failures": [
            *(f"{node.device.name}: {node.fix_text}" for node in fit.nodes if not node.fits),
            *([fit.lacking] if fit.lacking else []),
        ],
        "model": fit.model,
        "parameters": parameters(fit.facts) if fit.facts else None,
        "trained_weights": fit.trained_weights if fit.facts else None,
        "decisions": fit.decisions.as_dict(),
        "reasons": fit.decisions.reasons,
        "max_seq_length": fit.setup.row_length,
        "micro_batch": fit.setup.micro_batch,
        "nodes": [
            {
                "name": node.device.name,
                "device": node.device.device,
                "has_bytes": node.device.memory_bytes,
                "needs_bytes": node.memory.total if fit.facts else None,
                "parts": asdict(node.memory) if fit.facts else None,
                "fits": node.fits,
                "micro_batch_up_to": node.micro_batch_up_to,
                "fix": node.fix,
                "weights": node.place.weights,
                "weights_why": node.place.why,
                "main_memory_missing_bytes": node.place.missing_bytes,
                "layers": list(fit.cut.layers[node.device.name])
                if fit.cut and node.device.name in fit.cut.layers
                else None,
            }
            for node in fit.nodes
        ],
        "wire_bytes_per_step": fit.traffic,
        "wire_seconds_per_step": {wire: round(seconds, 3) for wire, seconds in fit.seconds.items()},
    }


def predict(fit: Fit, machines: Sequence[speedup.Machine], config: RunConfig) -> MachinesPrediction:
    """What the machines would do together, with the wire that a run would choose."""
    weights, wire = fit.sent_weights, config.wire
    if wire == "auto":
        wire = speedup.wire_for(speedup.sync_seconds(machines, 4 * weights))
    traffic = speedup.Traffic(weights, wire, fewer_targets(fit), config.max_steps)
    found = prediction.predict(machines, config.rows_per_step, traffic, local=config.sync == "local")
    return replace(found, ways=[_as_settings(way, config) for way in found.ways if _is_known(way, config)])


def fewer_targets(fit: Fit) -> dict[str, int]:
    """The usual smaller choice of targets, and how many weights are trained with it."""
    if not isinstance(fit.facts, Facts) or fit.setup.full or not set(fit.setup.lora_targets) - set(FEWER):
        return {}
    has_them = counts_of(fit.facts).adapters.keys() >= set(FEWER)
    return {",".join(FEWER): lora_parameters(fit.facts, fit.setup.lora_r, FEWER)} if has_them else {}


def _is_known(way: prediction.RemedyFigures, config: RunConfig) -> bool:
    return config.optimizer == "adamw" or "sync" not in way.settings  # as settings/every_run.py checks


def _as_settings(way: prediction.RemedyFigures, config: RunConfig) -> prediction.RemedyFigures:
    rows = way.settings.get("rows_per_step")
    return replace(way, settings=config.larger_step(rows)) if rows else way
