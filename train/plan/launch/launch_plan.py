"""The plan of a run as the steps after it read it: what each node is brought, what it runs by, and what is shown.

`to_json` is what Ansible carries from step to step, and what `./motley plan --json` prints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Self, TypeVar

from train.files import SizeAndHash
from train.plan.estimate.sizes import SizeEstimate
from train.plan.model.sources import AdapterSource, BaseModel, DataSource, RawData, TokenizerSource
from train.plan.placement.pipeline_split import Room
from train.plan.settings.read_settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class NodePlan:
    """A node, as the script that starts its part needs it."""

    name: str
    address: str
    home: str
    interface: str | None
    """The NIC that leads to the other nodes."""
    cores: int
    processes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingNode(NodePlan):
    device: str
    bytes: int
    """Memory that one process may count on."""
    weights: str
    """Where the frozen base is: gpu or stream."""
    calibrate: Sequence[str]
    """What it is told beside the plan's own `calibrate`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicted:
    """What is kept with the run, so that its report can hold it against what came."""

    step_s: float
    shares: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeFile:
    """A recipe of one's own, a file of rewards or a chat template, for the head, which makes the rows with it."""

    folder: str
    files: Mapping[str, SizeAndHash]
    """Name → size and sha256."""
    place: str
    """The folder that it goes to."""

    @property
    def name(self) -> str:
        return next(iter(self.files))


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtraEnvironment:
    """Packages beside those of the nodes' own environment, for what makes the answers or for a recipe."""

    folder: str
    """Below the cluster's folder."""
    sets: Sequence[str]
    """The locked sets that it is made of."""
    imports: Sequence[str]
    """Modules that must load in it."""
    layered: bool
    """Whether it holds only what the nodes' own environment lacks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Electricity:
    """The power and the price of an hour; None for what is not known or not set (console/electricity.py counts it)."""

    kwh_price: float | None = None
    currency: str = ""
    idle_watts: Mapping[str, float | None]
    """Each node's, beside its GPUs."""
    gpu_watts: Mapping[str, float | None]
    watts: float | None = None
    per_hour: float | None = None
    covers: str | None = None
    """What of all nodes is counted, in words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunElectricity(Electricity):
    seconds: float | None = None
    cost: float | None = None
    bound: str | None = None
    """up to, about or at least, as far as every GPU's limit is known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchPlan:
    run: str
    step: int
    """The step after which it begins."""
    begun_again: int
    """How many times a run of this name was begun again from the start."""
    older_on: Sequence[str]
    """The nodes whose files of an earlier run of this name are moved aside first."""
    settings: Settings
    """Every setting of the run, as it will be."""
    help: Mapping[str, str]
    given: Settings
    predicted: Predicted | None
    model: BaseModel
    dataset: DataSource
    memory: Mapping[str, Any]
    lack_model: Sequence[str]
    """The nodes that have to be sent the model."""
    old_code: Sequence[str]
    """The nodes whose training package is not the one here."""
    raw: str
    """Where the head keeps a data set that was brought to it, as it came; empty where it makes the data itself."""
    raw_parts: Sequence[RawData]
    """All that is brought to the head so: several data sets, or that one."""
    prepare: Sequence[str]
    """How the head makes rows of the data: words behind `python -m train`."""
    calibrate: Sequence[str]
    """How a node measures its speed, likewise."""
    tokenizer: TokenizerSource | None
    recipe: RecipeFile | None
    extra_environments: Sequence[ExtraEnvironment]
    template: RecipeFile | None
    """A chat template of one's own, for the head."""
    adapter: AdapterSource | None
    link_mbit: float
    sizes: Sequence[SizeEstimate]
    pipe: Room | None
    """How much each node of a model that is cut can hold."""
    speeds: Mapping[str, float]
    warnings: Sequence[str]
    nodes: Sequence[TrainingNode]
    """The nodes in the agreed order, the head first."""
    electricity: RunElectricity
    asked: Settings = field(default_factory=dict)
    """What it is written back from as a file: all that was asked for, as it was asked (console/run_file.py)."""

    PARTS: ClassVar[Mapping[str, type[Any]]] = {
        "predicted": Predicted,
        "model": BaseModel,
        "dataset": DataSource,
        "tokenizer": TokenizerSource,
        "recipe": RecipeFile,
        "template": RecipeFile,
        "adapter": AdapterSource,
        "pipe": Room,
        "electricity": RunElectricity,
    }
    LISTS: ClassVar[Mapping[str, type[Any]]] = {"sizes": SizeEstimate, "nodes": TrainingNode, "raw_parts": RawData} | {
        "extra_environments": ExtraEnvironment
    }

    def to_json(self) -> dict[str, Any]:
        return {name: {} if value is None else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        plain = json.loads(json.dumps(data))  # what Ansible gives is tagged
        for name, kind in cls.PARTS.items():
            plain[name] = kind(**plain[name]) if plain[name] else None
        for name, kind in cls.LISTS.items():
            plain[name] = [kind(**entry) for entry in plain[name]]
        return cls(**{spec.name: plain[spec.name] for spec in fields(cls)})


N = TypeVar("N", bound=NodePlan)


def own(nodes: Sequence[N], name: str) -> N:
    return next(node for node in nodes if node.name == name)


def smallest(plan: LaunchPlan) -> TrainingNode:
    """The node that needs most: where all nodes run by one file it is as this node needs it."""
    return next((node for node in plan.nodes if node.weights == "stream"), plan.nodes[0])
