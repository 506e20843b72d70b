"""What a launch decided, with its reasons; and the plan that the later steps read, made of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from train.files import size_and_hash
from train.layout import BASE_MODELS, RAW_DATA
from train.plan.estimate.pipeline_prediction import rows_in_pipe
from train.plan.estimate.sizes import SizeEstimate
from train.plan.launch import extra_packages
from train.plan.launch.launch_plan import LaunchPlan, Predicted, RecipeFile, RunElectricity, TrainingNode
from train.plan.machines.nodes import PlanNode, Speeds
from train.plan.model import adapters
from train.plan.model.catalogue import Dataset
from train.plan.model.sources import AdapterSource, BaseModel, DataSource, RawData, TokenizerSource
from train.plan.model.verdict import Verdict
from train.plan.placement import fit
from train.plan.settings import own_recipe
from train.plan.settings.config import Settings
from train.plan.settings.every_run import COMMON_COUNTS
from train.plan.settings.request import HELP, Request
from train.plan.speed.prediction import Prediction
from train.plan.speed.speedup import wire_for


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    request: Request
    nodes: Sequence[PlanNode]
    settings: Settings
    """Every setting of the run, as it will be."""
    model: BaseModel
    model_bytes: int
    lacking: Sequence[str]
    """Nodes that have not the model yet."""
    old_code: Sequence[str]
    """Nodes whose training package is not the one here."""
    fit: fit.Fit
    link_why: str
    speeds: Speeds = field(default_factory=Speeds)
    prediction: Prediction | None = None
    """What the nodes do together; None until every node's speed is known."""
    verdict: Verdict | None = None
    """What a miniature of the model has shown."""
    sizes: Sequence[SizeEstimate] = ()
    """What could be trained instead, of a recipe whose sizes have names."""
    warnings: Sequence[str] = ()

    @property
    def run(self) -> str:
        return self.request.config.run

    @property
    def wire(self) -> str:
        return wire_for(self.fit.seconds["fp32"], str(self.settings["wire"]))

    @property
    def sync_s(self) -> float:
        return self.fit.seconds[self.wire]


def predicted(plan: Plan) -> Predicted | None:
    if not plan.prediction:
        return None
    together, rows = plan.prediction.together, plan.settings["rows_per_step"]
    if plan.settings["balance"] == "even":
        even = {node.name: round(rows / len(plan.nodes), 1) for node in plan.nodes}
        return Predicted(step_s=together.step_s * plan.prediction.over_even_split, shares=even)
    return Predicted(step_s=together.step_s, shares=together.shares)


def raw_folder(plan: Plan, data: Dataset) -> str:
    return "" if data.embedded or data.parts else f"{plan.nodes[0].facts.home}/{RAW_DATA}/{data.local_name}"


def raw_parts(plan: Plan) -> list[RawData]:
    """What has to be brought to the head of each data set."""
    places = [(part.data, raw_folder(plan, part.data)) for part in plan.request.dataset.each]
    return [RawData(dataset=asdict(DataSource.of(data)), place=place) for data, place in places if place]


def at_the_head(plan: Plan, data: Dataset) -> str:
    """How the head names a data set."""
    raw = raw_folder(plan, data)
    return (f"{raw}/{data.file.resolve().name}" if data.file else raw or data.name) + data.taken.typed


def prepare_words(plan: Plan) -> list[str]:
    data, config = plan.request.dataset, plan.request.config
    tokenizer, recipe = tokenizer_to_bring(plan), recipe_to_bring(plan)
    several = [f"{at_the_head(plan, part.data)}:{part.weight:g}" for part in data.parts]
    source = ",".join(several) or at_the_head(plan, data)
    model = tokenizer.place if tokenizer else ""
    if plan.model.folder_name:
        model = f"{plan.nodes[0].facts.home}/{BASE_MODELS}/{plan.model.folder_name}"
    words = ["prepare", "--json", f"--dataset={source}"]
    words += config.prepare_words(model, f"{recipe.place}/{recipe.name}" if recipe else "")
    words += [f"--chat-template={template.place}/{template.name}"] if (template := template_to_bring(plan)) else []
    words += [f"--patience={config.patience}"] if config.patience else []
    return words + ([f"--passed-over={data.passed_over}"] if data.passed_over else [])  # it is not brought to the head


def recipe_to_bring(plan: Plan) -> RecipeFile | None:
    """A file of one's own: a recipe, or the rewards of one of ours."""
    file = plan.request.config.file_to_bring
    return file_for_head(plan, *file) if file else None


def template_to_bring(plan: Plan) -> RecipeFile | None:
    file = plan.settings.get("chat_template")
    return file_for_head(plan, "template", Path(file)) if file else None


def file_for_head(plan: Plan, kind: str, path: Path) -> RecipeFile:
    entry = size_and_hash(path)
    place = f"{plan.nodes[0].facts.home}/{RAW_DATA}/{kind}-{entry['sha256'][:12]}"
    return RecipeFile(folder=str(path.parent), files={path.name: entry}, place=place)


def adapter_to_bring(plan: Plan) -> AdapterSource | None:
    folder = plan.settings.get("adapter")
    return AdapterSource.of(adapters.read(Path(folder))) if folder else None


def tokenizer_to_bring(plan: Plan) -> TokenizerSource | None:
    """The tokenizer of another model; None where none is needed, and for one that the head makes itself."""
    model = plan.request.config.tokenizer_model(plan.request.home)
    if model is None or (model.embedded and not model.folder):
        return None
    folder = str(model.folder.resolve()) if model.folder else ""
    place = f"{plan.nodes[0].facts.home}/{RAW_DATA}/tokenizer-{model.local_name}"
    return TokenizerSource(name=model.name, hub=model.hub, folder=folder, place=place)


def calibrate_words(plan: Plan) -> list[str]:
    """Empty where only rows can show a node's speed, and where each takes as much as it can."""
    if own_recipe.is_file(plan.settings["recipe"]) or plan.request.config.IN_PIECES:
        return []
    config, settings = plan.request.config, plan.settings
    names = [*COMMON_COUNTS, *config.COUNTED]
    base = {"model": f"{BASE_MODELS}/{plan.model.folder_name}"} if plan.model.folder_name else {}
    given = {name: settings[name] for name in dict.fromkeys(["recipe", *names]) if settings[name] is not None} | base
    return ["calibrate", "--json", *(f"--{name.replace('_', '-')}={as_word(value)}" for name, value in given.items())]


def own_calibrate_words(plan: Plan, entry: fit.NodeFit) -> list[str]:
    """What is this node's own of it: where it has the base, or its part of the model."""
    if "weights" not in plan.settings:
        return []
    cut = plan.fit.cut
    words = [f"--weights={entry.place.weights}", *([f"--pipes={plan.settings['pipes']}"] if cut else [])]
    if entry.place.weights == "stream":  # it tries no more rows at a time than an even share
        words.append(
            f"--rows-per-step={-(-plan.settings['rows_per_step'] // sum(n.device.processes for n in plan.nodes))}"
        )
    if cut and (part := cut.layers.get(entry.device.name)):
        rows = rows_in_pipe(plan.fit, plan.request.config, entry.device.name)
        count = (
            part[1] - part[0]
        ) // entry.device.processes  # where it has several cards, one of them measures its part
        words += [f"--part={part[0]}-{part[0] + count}", f"--micro-batch={rows}"]
    return words


def as_word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def launch_plan(plan: Plan, electricity: RunElectricity) -> LaunchPlan:
    return LaunchPlan(
        run=plan.run,
        step=plan.request.step,
        from_start=plan.request.from_start,
        settings=plan.settings,
        help=HELP | {spec.name: spec.metadata["help"] for spec in fields(plan.request.config)},
        given={name: plan.settings[name] for name in plan.request.given},
        predicted=predicted(plan),
        model=plan.model,
        dataset=DataSource.of(plan.request.dataset),
        memory=fit.to_json(plan.fit),
        lack_model=plan.lacking,
        old_code=plan.old_code,
        raw=raw_folder(plan, plan.request.dataset),
        raw_parts=raw_parts(plan),
        prepare=prepare_words(plan),
        calibrate=calibrate_words(plan),
        tokenizer=tokenizer_to_bring(plan),
        recipe=recipe_to_bring(plan),
        extra_environments=extra_packages.environments(plan.request.config, plan.nodes),
        template=template_to_bring(plan),
        adapter=adapter_to_bring(plan),
        link_mbit=plan.fit.link_mbit,
        sizes=plan.sizes,
        pipe=plan.fit.cut.room if plan.fit.cut else None,
        speeds=plan.speeds.rows_per_s,
        warnings=plan.warnings,
        nodes=[_training_node(plan, *pair) for pair in zip(plan.nodes, plan.fit.nodes, strict=True)],
        electricity=electricity,
    )


def _training_node(plan: Plan, node: PlanNode, entry: fit.NodeFit) -> TrainingNode:
    return TrainingNode(
        name=node.name,
        address=node.address,
        home=node.facts.home,
        interface=node.facts.route.nic or None,
        cores=node.facts.cores,
        processes=node.device.processes,
        device=node.device.device,
        bytes=node.device.memory_bytes,
        weights=entry.place.weights,
        calibrate=own_calibrate_words(plan, entry),
    )
