"""How a model is held on these machines: every way that the settings allow, the best first, until all can hold it so.

    held      each machine has the whole base where it computes
    streamed  whoever cannot brings its layers from main memory or files
    cut       whoever can do neither holds it with others, each some of its layers

The form of the base comes first: 16 bit where every machine could hold it whole, else 4 (choose_4_8_or_16_bit.py). A
setting takes ways out, and adds none. A launch asks for all nodes; a run that was started by hand for the devices it
finds. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from train.errors import BadInput
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import AnyFacts, Facts
from train.plan.model.counts import counts_of
from train.plan.model.memory import ALL_LINEAR, Setup
from train.plan.model.weight_files import FAMILIES
from train.plan.placement import pipeline_placement, precision_and_backend
from train.plan.placement.choose_4_8_or_16_bit import choose_form
from train.plan.placement.fit import Case, Fit, Way, fit, setup_for
from train.plan.placement.hold_or_stream import HELD, place
from train.plan.settings.pipes import check_names, parse_pipes
from train.plan.settings.read_settings import RunConfig


def choose(
    config: RunConfig, devices: Sequence[Device], facts: AnyFacts | None, *, model: str = "", mbit: float = 0.0
) -> Fit:
    """The first way that fits, else the last with what is missing; BadInput where a setting cannot be had on these
    devices. `facts`: None where nothing is known of the model before it is built."""
    check_names(parse_pipes(config.holding.pipes), [device.name for device in devices])
    if isinstance(facts, Facts) and (facts.counts or facts.family in FAMILIES):
        require_targets(config.holding.lora_targets.split(","), counts_of(facts).adapters)
    return first_that_fits(case_of(config, devices, facts, model=model, mbit=mbit))


def choose_on_devices(config: RunConfig, devices: Sequence[Device], facts: AnyFacts | None) -> Fit:
    """Chooses for a run on the devices that it finds; its pipes are as set, and formed of whoever is there."""
    if not parse_pipes(config.holding.pipes):
        return first_that_fits(case_of(config.held(pipes="off"), devices, facts))
    case = case_of(config, devices, facts)
    return fit(case, cut_way(case, "off"))


def first_that_fits(case: Case) -> Fit:
    tried = None
    for way in ways(case):
        tried = fit(case, way)
        if tried.ok:
            break
    assert tried
    return tried


def require_targets(targets: Sequence[str], layers: Collection[str]) -> None:
    if tuple(targets) != ALL_LINEAR and (
        unknown := {name for name in targets if name.rpartition(".")[2] not in layers}
    ):
        raise BadInput(
            f"lora_targets: no layer is called {', '.join(sorted(unknown))}", fix=f"known: {' '.join(layers)}"
        )


def case_of(
    config: RunConfig, devices: Sequence[Device], facts: AnyFacts | None, *, model: str = "", mbit: float = 0.0
) -> Case:
    precision_and_backend.require_optimizer(config, devices)
    alone = precision_and_backend.backend(config, devices, facts)
    checkpointing, _ = precision_and_backend.checkpointing(config, devices, alone[0])
    form = choose_form(config, devices, facts, setup_for(config, checkpointing))
    precision = precision_and_backend.precision(config, devices, facts)
    return Case(
        config=config, devices=devices, facts=facts, model=model, mbit=mbit, alone=alone, form=form, precision=precision
    )


def ways(case: Case) -> Iterator[Way]:
    """Every way that the settings allow, the best first."""
    held, facts = case.config.holding, case.facts
    asked = parse_pipes(held.pipes)
    if asked:
        yield cut_way(case, held.pipes, "as set")
        return
    must_stream = held.weights == "stream" or any(device.weights == "stream" for device in case.devices)
    # All weights are trained where they are computed with, and unsloth neither streams nor cuts.
    whole = held.full or held.backend == "unsloth"
    if whole or not must_stream:
        yield Way(backend=case.alone, places=[HELD] * len(case.devices))
    if whole or not (must_stream or isinstance(facts, Facts)):  # without known layers there is nothing to stream
        return
    setup = case.setup("hf")
    places = [place(held.weights, facts, setup, device) for device in case.devices]
    streams = [device.name for device, at in zip(case.devices, places, strict=True) if at.weights == "stream"]
    last = Way(backend=instead_of_unsloth(case, streams) if streams else case.alone, places=places)
    yield last
    if isinstance(facts, Facts) and may_be_cut(case.config, setup):
        pipes, why = pipeline_placement.groups(facts, setup, case.devices, streams)
        yield replace(last, why_pipes=why) if pipes == "off" else cut_way(case, pipes, why)


def cut_way(case: Case, pipes: str, why: str = "") -> Way:
    """A machine in no pipe holds the base: to stream it beside a pipe is not known to the trainer."""
    return Way(backend=instead_of_unsloth(case), places=[HELD] * len(case.devices), pipes=pipes, why_pipes=why)


def may_be_cut(config: RunConfig, setup: Setup) -> bool:
    """Whether the model may be cut over nodes where nobody has asked for it."""
    held = config.holding
    # What `pipes` does not go with where a person sets it (settings/sft.py), no plan may choose either.
    if setup.full or setup.load_in == "8bit" or config.sync == "local":
        return False
    return held.pipes == held.weights == "auto" and held.backend != "unsloth"


def pipe_of_all(case: Case) -> Way:
    """The way in which each machine holds a part, whoever could do without."""
    return cut_way(case, "+".join(device.name for device in case.devices))


def instead_of_unsloth(case: Case, streams: Sequence[str] = ()) -> tuple[str, str]:
    """The backend where a machine has not the whole base."""
    if case.alone[0] != "unsloth":
        return case.alone
    who = ", ".join(sorted(set(streams)))
    return "hf", f"unsloth cannot stream, and {who} must" if who else "unsloth cuts no model"
