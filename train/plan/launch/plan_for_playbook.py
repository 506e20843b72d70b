"""The plan that the later steps read, made of what a launch decided."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path

from train.files import size_and_hash
from train.layout import BASE_MODELS, RAW_DATA
from train.plan.estimate.pipeline_prediction import rows_in_pipe
from train.plan.launch import extra_packages
from train.plan.launch.decide import Decided
from train.plan.launch.launch_plan import LaunchPlan, Predicted, RecipeFile, RunElectricity, TrainingNode
from train.plan.launch.new_or_resumed import is_older
from train.plan.machines.nodes import PlanNode
from train.plan.model import adapters
from train.plan.model.catalogue import Dataset
from train.plan.model.sources import AdapterSource, DataSource, RawData, TokenizerSource
from train.plan.placement import fit
from train.plan.settings import own_recipe
from train.plan.settings.every_run import COMMON_COUNTS
from train.plan.settings.request import HELP


def predicted(decided: Decided) -> Predicted | None:
    if not decided.prediction:
        return None
    together, rows = decided.prediction.together, decided.settings["rows_per_step"]
    if decided.settings["balance"] == "even":
        even = {node.name: round(rows / len(decided.nodes), 1) for node in decided.nodes}
        return Predicted(step_s=together.step_s * decided.prediction.over_even_split, shares=even)
    return Predicted(step_s=together.step_s, shares=together.shares)


def raw_folder(decided: Decided, data: Dataset) -> str:
    return "" if data.embedded or data.parts else f"{decided.nodes[0].facts.home}/{RAW_DATA}/{data.local_name}"


def raw_parts(decided: Decided) -> list[RawData]:
    """What has to be brought to the head of each data set."""
    places = [(part.data, raw_folder(decided, part.data)) for part in decided.request.dataset.each]
    return [RawData(dataset=asdict(DataSource.of(data)), place=place) for data, place in places if place]


def at_the_head(decided: Decided, data: Dataset) -> str:
    """How the head names a data set."""
    raw = raw_folder(decided, data)
    return (f"{raw}/{data.file.resolve().name}" if data.file else raw or data.name) + data.taken.typed


def prepare_words(decided: Decided) -> list[str]:
    data, config = decided.request.dataset, decided.request.config
    tokenizer, recipe = tokenizer_to_bring(decided), recipe_to_bring(decided)
    several = [f"{at_the_head(decided, part.data)}:{part.weight:g}" for part in data.parts]
    source = ",".join(several) or at_the_head(decided, data)
    model = tokenizer.place if tokenizer else ""
    if decided.model.folder_name:
        model = f"{decided.nodes[0].facts.home}/{BASE_MODELS}/{decided.model.folder_name}"
    words = ["prepare", "--json", f"--dataset={source}"]
    words += config.prepare_words(model, f"{recipe.place}/{recipe.name}" if recipe else "")
    words += [f"--chat-template={template.place}/{template.name}"] if (template := template_to_bring(decided)) else []
    words += [f"--patience={config.patience}"] if config.patience else []
    return words + ([f"--passed-over={data.passed_over}"] if data.passed_over else [])  # it is not brought to the head


def recipe_to_bring(decided: Decided) -> RecipeFile | None:
    """A file of one's own: a recipe, or the rewards of one of ours."""
    file = decided.request.config.file_to_bring
    return file_for_head(decided, *file) if file else None


def template_to_bring(decided: Decided) -> RecipeFile | None:
    file = decided.settings.get("chat_template")
    return file_for_head(decided, "template", Path(file)) if file else None


def file_for_head(decided: Decided, kind: str, path: Path) -> RecipeFile:
    entry = size_and_hash(path)
    place = f"{decided.nodes[0].facts.home}/{RAW_DATA}/{kind}-{entry['sha256'][:12]}"
    return RecipeFile(folder=str(path.parent), files={path.name: entry}, place=place)


def adapter_to_bring(decided: Decided) -> AdapterSource | None:
    folder = decided.settings.get("adapter")
    return AdapterSource.of(adapters.read(Path(folder))) if folder else None


def tokenizer_to_bring(decided: Decided) -> TokenizerSource | None:
    """The tokenizer of another model; None where none is needed, and for one that the head makes itself."""
    model = decided.request.config.tokenizer_model(decided.request.home)
    if model is None or (model.embedded and not model.folder):
        return None
    folder = str(model.folder.resolve()) if model.folder else ""
    place = f"{decided.nodes[0].facts.home}/{RAW_DATA}/tokenizer-{model.local_name}"
    return TokenizerSource(name=model.name, hub=model.hub, folder=folder, place=place)


def calibrate_words(decided: Decided) -> list[str]:
    """Empty where only rows can show a node's speed, and where each takes as much as it can."""
    if own_recipe.is_file(decided.settings["recipe"]) or decided.request.config.IN_PIECES:
        return []
    config, settings = decided.request.config, decided.settings
    names = [*COMMON_COUNTS, *config.COUNTED]
    base = {"model": f"{BASE_MODELS}/{decided.model.folder_name}"} if decided.model.folder_name else {}
    given = {name: settings[name] for name in dict.fromkeys(["recipe", *names]) if settings[name] is not None} | base
    return ["calibrate", "--json", *(f"--{name.replace('_', '-')}={as_word(value)}" for name, value in given.items())]


def own_calibrate_words(decided: Decided, entry: fit.NodeFit) -> list[str]:
    """What is this node's own of it: where it has the base, or its part of the model."""
    if "weights" not in decided.settings:
        return []
    cut = decided.fit.cut
    words = [f"--weights={entry.place.weights}", *([f"--pipes={decided.settings['pipes']}"] if cut else [])]
    if entry.place.weights == "stream":  # it tries no more rows at a time than an even share
        words.append(
            f"--rows-per-step={-(-decided.settings['rows_per_step'] // sum(n.device.processes for n in decided.nodes))}"
        )
    if cut and (part := cut.layers.get(entry.device.name)):
        rows = rows_in_pipe(decided.fit, decided.request.config, entry.device.name)
        count = (
            part[1] - part[0]
        ) // entry.device.processes  # where it has several cards, one of them measures its part
        words += [f"--part={part[0]}-{part[0] + count}", f"--micro-batch={rows}"]
    return words


def as_word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def launch_plan(decided: Decided, electricity: RunElectricity) -> LaunchPlan:
    return LaunchPlan(
        run=decided.run,
        step=decided.request.step,
        begun_again=decided.request.begun_again,
        older_on=[node.name for node in decided.nodes if has_older(decided, node)],
        settings=decided.settings,
        help=HELP | {spec.name: spec.metadata["help"] for spec in fields(decided.request.config)},
        given={name: decided.settings[name] for name in decided.request.given},
        predicted=predicted(decided),
        model=decided.model,
        dataset=DataSource.of(decided.request.dataset),
        memory=fit.to_json(decided.fit),
        lack_model=decided.lacking,
        old_code=decided.old_code,
        raw=raw_folder(decided, decided.request.dataset),
        raw_parts=raw_parts(decided),
        prepare=prepare_words(decided),
        calibrate=calibrate_words(decided),
        tokenizer=tokenizer_to_bring(decided),
        recipe=recipe_to_bring(decided),
        extra_environments=extra_packages.environments(decided.request.config, decided.nodes),
        template=template_to_bring(decided),
        adapter=adapter_to_bring(decided),
        link_mbit=decided.fit.link_mbit,
        sizes=decided.sizes,
        pipe=decided.fit.cut.room if decided.fit.cut else None,
        speeds=decided.speeds.rows_per_s,
        warnings=decided.warnings,
        nodes=[_training_node(decided, *pair) for pair in zip(decided.nodes, decided.fit.nodes, strict=True)],
        electricity=electricity,
    )


def has_older(decided: Decided, node: PlanNode) -> bool:
    found = node.facts.runs.get(decided.run)
    return decided.request.from_start or bool(found and is_older(found, decided.request.begun_again))


def _training_node(decided: Decided, node: PlanNode, entry: fit.NodeFit) -> TrainingNode:
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
        calibrate=own_calibrate_words(decided, entry),
    )
