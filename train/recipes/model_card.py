"""What a result says of itself to others: the base by the name that they can load it by, and a card as the hub expects.

Training names the base by a folder of this node, which nobody else has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import yaml

from train.errors import BadInput
from train.plan.model import adapters, data_sets
from train.plan.model.catalogue import catalogue, read_config, resolve_dataset, resolve_model
from train.runlog import paths

if TYPE_CHECKING:
    from train.engine.loop import Run
    from train.plan.settings.read_settings import ImagesConfig, OwnConfig, PretrainConfig, RunConfig, SftConfig

CARD = "README.md"


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """What a run is made of, in the words of whoever launched it."""

    base: str
    hub: str | None
    """The base's id there; None where the hub has no such model."""
    dataset: str

    @property
    def made_here(self) -> bool:
        return not self.hub and self.base in catalogue()["models"]

    @property
    def base_for_others(self) -> str:
        """Programs that try to load it show it: where they cannot, it says why."""
        known = self.hub or self.base
        return f"{known} (made by Motley: it cannot be loaded elsewhere)" if self.made_here else known


def origin_of(config: SftConfig | ImagesConfig) -> Origin:
    """A launch has put folders of this node in place of the names; launch.json has kept them."""
    try:
        base, hub = _launched_base(config)
    except Exception:  # whatever is wrong with that file, names are not worth a run's result
        base, hub = config.model, None
    return Origin(base=base, hub=hub, dataset=launched_dataset(config))


def _launched_base(config: SftConfig | ImagesConfig) -> tuple[str, str | None]:
    """The base's name, and its id on the hub."""
    file = config.log_folder / paths.LAUNCH
    launched = json.loads(file.read_text()) if file.is_file() else {}
    given, base = launched.get("all", {}), launched.get("model", {})
    if "hub" not in base:
        return config.model, resolve_model(config.model).hub
    name = base.get("name") if base["hub"] or base.get("name") in catalogue()["models"] else given.get("model")
    return name or config.model, base["hub"]


def launched_dataset(config: RunConfig) -> str:
    """The data as they were named at the launch; else, as of a run by hand, as the settings name them."""
    try:
        return str(json.loads((config.log_folder / paths.LAUNCH).read_text())["all"]["dataset"])
    except (OSError, ValueError, LookupError, TypeError):
        return config.dataset


def name_base(folder: Path, origin: Origin) -> None:
    file = folder / "adapter_config.json"
    if file.exists():  # else it is a model of its own
        facts = json.loads(file.read_text()) | {"base_model_name_or_path": origin.base_for_others}
        file.write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")


def descent(config: SftConfig, origin: Origin, base_hash: str, steps: int) -> adapters.Descent:
    """Where the adapter of this run comes from: its base, and each run from there to here."""
    before = adapters.read(Path(config.adapter)).runs if config.adapter else []
    data = data_sets.shown(origin.dataset)
    own = adapters.Ancestor(run=config.run, recipe=config.recipe, data=data, steps=steps)
    return adapters.Descent(
        base=origin.base,
        hub=origin.hub,
        sha256=base_hash,
        targets=config.lora_targets,
        runs=[*before, own],
    )


def card(
    run: Run,
    before: float | None,
    after: float | None,
    measure: str = "held-out loss",
    also: Mapping[str, str] | None = None,
) -> str:
    """The card of a run that fine-tunes; what was measured before and after it is a loss or a reward. `also`: what
    else was measured."""
    config, rows, steps = cast("SftConfig", run.config), len(run.rows), run.step
    full, origin = config.method == "full", origin_of(config)
    what = f"All weights of {linked(origin)}, trained" if full else f"A LoRA adapter for {linked(origin)}, trained"
    if config.scores:
        what = (
            f"A reward model, which gives an answer a score: a LoRA adapter with a head for {linked(origin)}, trained"
        )
    data, hub_data = about_data(origin.dataset)
    settings: dict[str, object] = {
        "learning rate": config.learning_rate,
        "seed": config.seed,
        "row length": config.max_seq_length,
    }
    if not full:
        settings |= {"descent": descent(config, origin, "", steps).words} if config.adapter else {}
        settings |= {"LoRA rank": config.lora_r, "LoRA alpha": config.lora_alpha, "LoRA layers": config.lora_targets}
    facts = {"base": linked(origin), "data": f"{data}, {rows} rows", "steps": f"{steps} of {config.rows_per_step} rows"}
    facts |= {name: str(value) for name, value in settings.items()} | {measure: held_out(before, after), **(also or {})}
    use = loading(config.run, origin, full=full, wrapper=is_wrapper(Path(config.model)))
    known = header(origin, hub_data, full=full)
    if config.scores:
        use, known["pipeline_tag"] = scoring(origin), "text-classification"
    return page(config.run, known, what, facts, use)


def weights_of(run: Run) -> int:
    count: int = sum(p.numel() for p in run.trained.parameters)
    return count


def new_card(run: Run) -> str:
    """The card of a model that has no base."""
    config = cast("PretrainConfig", run.config)
    data, hub_data = about_data(launched_dataset(config), folders=True)
    shape = f"Llama, {config.layers} layers, {config.hidden_size} wide, {config.heads} heads"
    facts = {
        "shape": f"{shape}, {weights_of(run) / 1e6:.1f} M weights",
        "data": f"{data}, {len(run.rows)} rows of {config.max_seq_length} tokens",
        "steps": f"{run.step} of {config.tokens_per_step} tokens",
        "learning rate": f"{config.learning_rate:g}",
        "seed": str(config.seed),
        "held-out loss": held_out(None, run.milestones.newest),
    }
    known: dict[str, object] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    known |= {"tags": ["motley"]} | ({"datasets": [hub_data]} if hub_data else {})
    use = ["## With transformers\n", "```python", "from transformers import pipeline\n"]
    use += [
        'write = pipeline("text-generation", "path/of/this/folder")',
        'print(write("Once upon a time")[0])',
        "```\n",
    ]
    return page(config.run, known, "A language model, trained from nothing", facts, [*use, *with_ollama(config.run)])


def own_card(run: Run) -> str:
    """The card of a model that a recipe of one's own has built."""
    config = cast("OwnConfig", run.config)
    facts = {
        "recipe": "`recipe.py`, beside this page",
        "weights": f"{weights_of(run) / 1e6:.3g} M",
        "data": f"{len(run.rows)} rows",
        "steps": f"{run.step} of {config.rows_per_step} rows",
        "learning rate": f"{config.learning_rate:g}",
        **{name.replace("_", " "): str(value) for name, value in config.own.items()},
        "held-out loss": held_out(None, run.milestones.newest),
    }
    use = [
        "## How to use it\n",
        "In this folder:\n",
        "```python",
        "import json",
        "from safetensors.torch import load_file",
        "import recipe\n",
        'model = recipe.model(json.load(open("settings.json")))',
        'model.load_state_dict(load_file("model.safetensors"))',
        "```\n",
    ]
    return page(config.run, {"tags": ["motley"]}, "A model of a recipe of our own, trained", facts, use)


def picture_card(run: Run, *, classes: int, pixels: str) -> str:
    config = cast("ImagesConfig", run.config)
    size, loads = config.image_size, config.is_base or config.model.startswith("vit")
    origin, weights, metrics = origin_of(config), f"{weights_of(run) / 1e6:.1f} M weights", run.milestones.metrics
    facts = {
        "shape": f"{config.model}, {config.width} wide, {weights}",
        "data": f"`{Path(origin.dataset).name}`, {len(run.rows)} pictures, {classes} classes",
        "steps": f"{run.step} of {config.rows_per_step} pictures",
        "learning rate": f"{config.learning_rate:g}, {config.optimizer}",
        "seed": str(config.seed),
        "held-out loss": held_out(None, run.milestones.newest),
        "accuracy": ", ".join(f"{name} {100 * value:.1f} %" for name, value in metrics.items()) or "not measured",
        "input": f"three colours, {size} × {size}, a byte b as {pixels}; grey three times",
        "labels": "labels.json, in the order of the outputs",
    }
    known = {"library_name": "transformers" if loads else "pytorch", "pipeline_tag": "image-classification"}
    what = "trained from nothing"
    if config.is_base:
        what = "fine-tuned"
        facts |= {"shape": weights, "base": origin.base_for_others}
        known |= {"base_model": origin.hub} if origin.hub else {}
    use = (
        f"## How to use it\n\nOn the cluster that trained it:\n\n    ./motley ask --run {config.run} --question FILE\n"
    )
    if loads:
        use += '\nElsewhere: `AutoModelForImageClassification.from_pretrained("path/of/this/folder")`\n'
    else:
        use += "\nElsewhere: a ResNet with GroupNorm; `train/recipes/images/resnet.py` of Motley is its code.\n"
    return page(config.run, known | {"tags": ["motley"]}, f"A picture classifier, {what}", facts, [use])


def page(run: str, header: Mapping[str, object], what: str, facts: dict[str, str], use: list[str]) -> str:
    return "\n".join(
        [
            "---",
            yaml.safe_dump(header, sort_keys=False).strip(),
            "---",
            f"# {run}\n\n{what} with Motley on a home cluster.\n",
            "| | |\n|---|---|",
            *(f"| {name} | {value} |" for name, value in facts.items()),
            "",
            *use,
        ]
    )


def header(origin: Origin, hub_data: str, *, full: bool) -> dict[str, object]:
    """https://huggingface.co/docs/hub/model-cards. The licence is its owner's to choose."""
    facts: dict[str, object] = {"library_name": "transformers" if full else "peft", "pipeline_tag": "text-generation"}
    if origin.hub:
        facts |= {"base_model": origin.hub, "base_model_relation": "finetune" if full else "adapter"}
    if hub_data:
        facts["datasets"] = hub_data.split(",")
    return facts | {"tags": ["motley"] if full else ["lora", "motley"]}


def linked(origin: Origin) -> str:
    return f"[{origin.hub}](https://huggingface.co/{origin.hub})" if origin.hub else f"`{Path(origin.base).name}`"


def about_data(name: str, *, folders: bool = False) -> tuple[str, str]:
    """The data set's name, and its id on the hub; of a file of the owner's no folder is given away."""
    if "," in name:
        return f"`{data_sets.shown(name)}`", ",".join(data_sets.hub_ids(name))
    try:
        data = resolve_dataset(data_sets.name_of(name, Path()), folders=folders)
    except (BadInput, OSError, RuntimeError):  # the file lies where it was launched, as may its owner's home
        return f"`{Path(name).name}`", ""
    if not data.hub:
        return f"`{data.name}`", ""
    repo = data.hub.partition(":")[0]
    return f"[{data.hub}](https://huggingface.co/datasets/{repo})", repo


def held_out(before: float | None, after: float | None) -> str:
    if after is None:
        return "not measured"
    return f"{after:.3f}" if before is None else f"{before:.3f} → {after:.3f}"


def is_wrapper(folder: Path) -> bool:
    return (folder / "config.json").is_file() and "text_config" in read_config(folder)


def loading(run: str, origin: Origin, *, full: bool, wrapper: bool = False) -> list[str]:
    if origin.made_here:
        why = f"Motley makes `{origin.base}` itself and the hub does not have it: this cannot be loaded elsewhere."
        return [f"## How to use it\n\n{why}\nOn the cluster that trained it:\n\n    ./motley ask --run {run}\n"]
    base = origin.hub or f"path/of/{Path(origin.base).name}"
    kind, source = ("AutoModelForCausalLM", "transformers") if full else ("AutoPeftModelForCausalLM", "peft")
    if wrapper:
        return whole_text_part(base) if full else [*of_wrapper(base), *with_ollama(run)]
    return [
        "## With transformers\n",
        "```python",
        f"from {source} import {kind}",
        "from transformers import AutoTokenizer\n",
        f'model = {kind}.from_pretrained("path/of/this/folder")',
        f'tokenizer = AutoTokenizer.from_pretrained("{base}")',
        "```\n",
        *([] if full else with_ollama(run)),
    ]


def scoring(origin: Origin) -> list[str]:
    base = origin.hub or f"path/of/{Path(origin.base).name}"
    return [
        "## With transformers\n",
        "```python",
        "from peft import PeftModel",
        "from transformers import AutoModelForSequenceClassification, AutoTokenizer\n",
        f'base = AutoModelForSequenceClassification.from_pretrained("{base}", num_labels=1)',
        'model = PeftModel.from_pretrained(base, "path/of/this/folder").eval()',
        f'tokenizer = AutoTokenizer.from_pretrained("{base}")',
        'turns = [{"role": "user", "content": "Where is the key?"}, {"role": "assistant", "content": "In the hall."}]',
        'tokens = tokenizer.apply_chat_template(turns, return_tensors="pt", return_dict=True)',
        "print(model(**tokens).logits.item())",
        "```\n",
        "Of two answers to a prompt the one with the higher score is better; alone a score means nothing. Score one",
        "text at a time, or pad with a token that ends no answer.\n",
    ]


def of_wrapper(base: str) -> list[str]:
    """An adapter for the text part of a model for pictures or sounds as well."""
    return [
        "## With transformers\n",
        "```python",
        "from peft import PeftModel",
        "from transformers import AutoModelForImageTextToText, AutoTokenizer\n",
        f'base = AutoModelForImageTextToText.from_pretrained("{base}")',
        'model = PeftModel.from_pretrained(base, "path/of/this/folder")',
        f'tokenizer = AutoTokenizer.from_pretrained("{base}")',
        "```\n",
    ]


def whole_text_part(base: str) -> list[str]:
    """All weights of the text part of such a model, whose other parts stay the base's."""
    return [
        "## With transformers\n",
        "```python",
        "from safetensors.torch import load_file",
        "from transformers import AutoModelForImageTextToText, AutoTokenizer\n",
        f'model = AutoModelForImageTextToText.from_pretrained("{base}")',
        'model.load_state_dict(load_file("path/of/this/folder/model.safetensors"), strict=False)',
        f'tokenizer = AutoTokenizer.from_pretrained("{base}")',
        "```\n",
    ]


def with_ollama(run: str) -> list[str]:
    return [
        "## With Ollama\n",
        f"Where it was trained from:\n\n    ./motley export --run {run} --to gguf\n",
        f"and in the folder that it names:\n\n    ollama create {run} -f Modelfile\n",
    ]
