"""Whether a model fits the nodes, what travels between them in a step, and what they do together. Pure.

`./motley plan --cards` and a launch compute it alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from train.plan.machines.nodes import Device
from train.plan.model.catalogue import AnyFacts, Facts
from train.plan.model.counts import counts_of
from train.plan.model.memory import (
    Change,
    Memory,
    Setup,
    changes_that_fit,
    fits,
    gib,
    largest_micro_batch,
    memory,
    parameters,
    trained_parameters,
)
from train.plan.placement import precision_and_backend
from train.plan.placement.decisions import Decisions
from train.plan.placement.hold_or_stream import HELD, Place, on_node, place
from train.plan.placement.pipeline_placement import Cut, cut, staged
from train.plan.settings.pipes import parse_pipes
from train.plan.settings.read_settings import RunConfig, Settings
from train.plan.speed import step_time

CHECKPOINTING = {"auto": None, "true": True, "unsloth": True, "false": False}
NAMES = {"row_length": "max_seq_length", "checkpointing": "gradient_checkpointing"}
"""What memory depends on → its setting, where that is called otherwise."""
OPTIMIZER_BYTES = {"adamw": 8, "adamw8bit": 2, "sgd": 4, "muon": 5}
"""Muon keeps one number for a weight of a matrix, and has AdamW for the others."""
MUON_SENDS = 1.5
"""Traffic with Muon, in times that of the gradients: each update of a matrix goes from its owner to all as well."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What is to be held, where, and what does not depend on the way."""

    config: RunConfig
    devices: Sequence[Device]
    facts: AnyFacts | None
    model: str
    mbit: float
    alone: tuple[str, str]
    """The backend of machines that have the whole base each, and why."""
    form: tuple[str, str]
    precision: tuple[str, str]

    def setup(self, backend: str) -> Setup:
        checkpointing, _ = precision_and_backend.checkpointing(self.config, self.devices, backend)
        return setup_for(self.config, checkpointing, self.form[0])

    def decisions(self, backend: tuple[str, str]) -> Decisions:
        checkpointing = precision_and_backend.checkpointing(self.config, self.devices, backend[0])
        names = (backend[0], self.precision[0], self.form[0], checkpointing[0])
        base = "not quantised" if self.form[0] == "16bit" else f"in {self.form[0]}"
        whys = {
            f"backend {backend[0]}": backend[1],
            f"precision {self.precision[0]}": self.precision[1],
            f"base {base}": self.form[1],
            **experts(self.form[0], self.facts),
            f"gradient checkpointing {checkpointing[0]}": checkpointing[1],
        }
        return Decisions(*names, whys)


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """One way to hold it."""

    backend: tuple[str, str]
    places: Sequence[Place]
    """Where each device has the base, if it has all of it."""
    pipes: str = "off"
    why_pipes: str = ""
    """Why they are so; of `off`: what is missing."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
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
    pipes: str = "off"
    cut: Cut | None = None
    """How some nodes hold the model together, where they do."""
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
            wire: int(step_time.ring_bytes(self.sent_weights * size, count))
            for wire, size in step_time.WIRE_BYTES.items()
        }

    @property
    def seconds(self) -> dict[str, float]:
        return {wire: step_time.link_seconds(sent, self.link_mbit) for wire, sent in self.traffic.items()}

    @property
    def ok(self) -> bool:
        return all(node.fits for node in self.nodes)


def experts(load_in: str, facts: AnyFacts | None) -> dict[str, str]:
    """What of a mixture is not in the form of the rest."""
    counts = counts_of(facts).experts if isinstance(facts, Facts) and load_in in ("4bit", "8bit") else {}
    size = gib(2 * sum(counts.values()))
    return {f"experts in 16bit, {size}": f"bitsandbytes has linear layers alone in {load_in}"} if counts else {}


def placed(config: RunConfig, fitted: Fit, at: int) -> tuple[RunConfig, list[str]]:
    """The settings of one device with where its base is in place of `auto`, and why."""
    held = fitted.nodes[at].place
    return config.held(weights=held.weights), [f"weights {held.weights}: {held.why}"] if held.why else []


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
        trains=held.trains,
    )


def fit(case: Case, way: Way) -> Fit:
    """What it takes on each machine, and whether that is there."""
    setup, facts, devices = case.setup(way.backend[0]), case.facts, case.devices
    may_stream = case.config.holding.weights == "auto" and not parse_pipes(way.pipes)  # else no fix may name it
    names = {**NAMES, "answers": case.config.SIDE_BY_SIDE}
    nodes = [
        fit_node(facts, setup, device, where, names, may_stream=may_stream)
        for device, where in zip(devices, way.places, strict=True)
    ]
    pipeline = cut(way.pipes, facts, setup, devices, why=way.why_pipes)
    return Fit(
        model=case.model,
        facts=facts,
        setup=setup,
        decisions=case.decisions(way.backend),
        nodes=as_stages(nodes, way.pipes, pipeline),
        link_mbit=case.mbit,
        sends=MUON_SENDS if case.config.optimizer == "muon" else 1.0,
        cut=pipeline,
        pipes=way.pipes,
        lacking=pipeline.lacking if pipeline else way.why_pipes * (way.pipes == "off"),
    )


def cut_by_speed(fitted: Fit, speeds: Mapping[str, float]) -> Fit:
    """The fit as a run cuts it that knows how fast its stages are. `speeds`: layers of a row per second."""
    assert fitted.cut
    devices = [node.device for node in fitted.nodes]
    again = cut(fitted.pipes, fitted.facts, fitted.setup, devices, why=fitted.cut.why, speeds=speeds)
    return replace(fitted, cut=again, nodes=as_stages(fitted.nodes, fitted.pipes, again))


def as_stages(nodes: list[NodeFit], pipes: str, pipeline: Cut | None) -> list[NodeFit]:
    members = staged(pipes, [node.device for node in nodes])
    return [as_stage(node, pipeline) if pipeline and node.device.name in members else node for node in nodes]


def as_stage(node: NodeFit, pipeline: Cut) -> NodeFit:
    name = node.device.name
    if name not in pipeline.layers:
        return replace(node, fits=False, fix=None, place=HELD)
    return replace(node, memory=pipeline.memory[name], fits=True, micro_batch_up_to=1, fix=None, place=HELD)


def fit_node(
    facts: AnyFacts | None, setup: Setup, device: Device, where: Place, names: Mapping[str, str], *, may_stream: bool
) -> NodeFit:
    """Whether one device has the memory. `names`: what memory depends on → the setting."""
    if facts is None:
        nothing = Memory(base=0, adapter=0, gradients=0, optimizer=0, activations=0, logits=0, runtime=0)
        return NodeFit(device=device, memory=nothing, fits=True, micro_batch_up_to=0, fix=None, place=where)
    here = replace(on_node(setup, device), weights=where.weights)
    enough = fits(facts, here, device.memory_bytes)
    changes, streams = (None, False) if enough else changes_of(facts, here, device, where, may_stream=may_stream)
    return NodeFit(
        device=device,
        memory=memory(facts, here),
        fits=enough,
        micro_batch_up_to=largest_micro_batch(facts, here, device.memory_bytes),
        fix={names.get(name, name): in_words(value) for name, value in changes.items()} if changes else None,
        place=where,
        fix_streams=streams,
    )


def changes_of(
    facts: AnyFacts, here: Setup, device: Device, where: Place, *, may_stream: bool
) -> tuple[Change | None, bool]:
    """Settings that make it fit where it is, else where its layers are streamed; and whether they are."""
    if changes := changes_that_fit(facts, here, device.memory_bytes):
        return changes, False
    if where.from_files:
        return Change(load_in=where.from_files), True
    changes = changes_that_fit(facts, replace(here, weights="stream"), device.memory_bytes) if may_stream else None
    if changes and place("auto", facts, replace(here, **changes), device).weights == "stream":
        return changes, True
    return None, False


def in_words(value: Any) -> Any:
    return ",".join(value) if isinstance(value, tuple) else value


def to_json(fit: Fit) -> dict[str, object]:
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
