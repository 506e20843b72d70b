"""The model that a launch trains: where it comes from, its shape and bytes, and which nodes have to be sent it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from train.errors import BadInput
from train.plan.machines.nodes import Device, LaunchFacts, all_gpus
from train.plan.model.catalogue import AnyFacts, Facts
from train.plan.model.counts import Counts
from train.plan.model.memory import parameters
from train.plan.model.sources import BaseModel
from train.plan.model.verdict import Verdict
from train.plan.placement.first_way_that_fits import case_of
from train.plan.settings.request import Request


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseFacts:
    """The model and what a plan needs to know of it."""

    model: BaseModel
    shape: AnyFacts | None
    size: int = 0
    """The bytes of its files; 0 where it begins with random weights."""
    lacking: Sequence[str] = field(default_factory=list)
    """The nodes that have to be sent it."""
    load_in: str = ""
    """Chosen here already where the hub has a copy in 4 bit: by it another file is brought."""


def base_model(request: Request, facts: LaunchFacts, devices: Sequence[Device]) -> BaseFacts:
    model, shape = BaseModel.of(request.model), request.model.facts
    if model.source == "new":
        return BaseFacts(model=model, shape=shape)
    load_in = form_of_the_hubs_copy(request, devices)
    in_4bit = load_in == "4bit"
    folder_name = model.local_name + ("-4bit" if in_4bit else "")
    lacking = who_lacks(f"model {folder_name}", facts.versions)
    model = replace(model, in_4bit=in_4bit, folder_name=folder_name)
    config_json, size = files_of(model, facts, may_fail=not lacking)
    if config_json:
        sizes = facts.verdict.shape if facts.verdict else {}  # a family may have other words for them
        shape = request.config.facts_of({**sizes, **config_json}, model.folder or str(model.hub))
        if isinstance(shape, Facts):
            shape = replace(shape, counts=counts(facts.verdict, request.model.facts))
    elif in_4bit and isinstance(shape, Facts):
        shape = replace(shape, on_disk="4bit")
    assert shape
    if model.folder:
        lacking = [device.name for device in devices]  # it may have changed: the relay looks, file by file
    comes_from = ("folder" if model.folder else "hub") if config_json else "head"
    reason = model.reason + (f", {model.hub_4bit} is its copy in 4 bit" if in_4bit else "")
    model = replace(model, comes_from=comes_from, reason=reason)
    return BaseFacts(model=model, shape=shape, size=size or 2 * parameters(shape), lacking=lacking, load_in=load_in)


def counts(verdict: Verdict | None, listed: AnyFacts | None) -> Counts | None:
    """The model as the head has counted it, else as the catalogue has it."""
    if verdict and verdict.counts:
        return verdict.counts
    return listed.counts if isinstance(listed, Facts) else None


def form_of_the_hubs_copy(request: Request, devices: Sequence[Device]) -> str:
    """The form of the base, where the hub has a copy in 4 bit that may be asked for; else empty."""
    config, model = request.config, request.model
    if not model.hub_4bit or config.holding.load_in not in ("auto", "4bit") or not all_gpus(devices):
        return ""
    return case_of(config, devices, model.facts).form[0]


def files_of(model: BaseModel, facts: LaunchFacts, *, may_fail: bool) -> tuple[Mapping[str, Any] | None, int]:
    """Its config.json and the bytes of its files; none where it comes as a package, or where nobody can be asked for a
    model that every node has already."""
    if model.embedded:
        return None, 0
    try:
        return facts.files(model)
    except BadInput:
        if may_fail and model.source == "catalogue":
            return None, 0
        raise


def who_lacks(key: str, versions: Mapping[str, Mapping[str, str | None]]) -> list[str]:
    """Which nodes have not a model, whole and as the first that has it: by the hashes that the relay left there."""
    values = [facts.get(key) for facts in versions.values()]
    usual = next((value for value in values if value and " " not in value), None)
    return [name for name, facts in versions.items() if usual is None or facts.get(key) != usual]
