"""A trained adapter that a new run begins with (`adapter=`): where it lies, what it asks of the run, and whose base it
is for.

    find          a folder, a run below the home or a hub id, as an Adapter
    asked         the settings that follow from it, for who has not set them; BadInput where they were set otherwise
    require_base  BadInput where the model is not the one that it was trained on, as far as that is known here
    descent.json  lies beside an adapter that Motley made: its base by hash, and the runs behind it

Without torch: the controller asks before it sends anything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from train.errors import BadInput
from train.files import SizeAndHash, size_and_hash, write_atomic
from train.plan.model import weight_files
from train.plan.model.catalogue import HUB_ID, Model, refuse_links
from train.plan.model.hashes import base_hash, folder_hash
from train.plan.run_name import as_name, is_name
from train.plan.values import Settings
from train.runlog import paths
from train.safe_stdio import plain

CONFIG, WEIGHTS, DESCENT = "adapter_config.json", "adapter_model.safetensors", "descent.json"
TEMPLATE = "chat_template.jinja"
FILES = (CONFIG, WEIGHTS, DESCENT, TEMPLATE)
"""All that is read of an adapter, and all that is sent of it."""
LARGEST = 1 << 20
"""Bytes of its two JSON files, at most: they may be somebody else's."""
NOT_HERE = {
    "modules_to_save": "trains whole layers beside it",
    "rank_pattern": "has a rank of its own for some layers",
    "alpha_pattern": "has a scale of its own for some layers",
    "layers_to_transform": "is for some of the layers alone",
    "layer_replication": "repeats layers of its base",
    "trainable_token_indices": "trains tokens of its base",
    "alora_invocation_tokens": "works behind tokens of its own alone (aLoRA)",
}
"""What others' adapters may have and a run here would not train on."""
CHANGES_BASE = ("pissa", "olora", "corda", "lora_ga", "loftq")
"""First weights that change the base as well: such an adapter fits no other. Those that Motley makes do not: they are
saved as a LoRA of twice the rank (train/models/lora_init.py)."""
CONVERT = "save it with PEFT as a plain LoRA: save_pretrained(FOLDER, path_initial_model_for_weight_conversion=FIRST)"
ANOTHER = "begin with another one, or leave adapter out: no model can be made of it and its base"
MERGE = "make one model of it and its base with PEFT (merge_and_unload) and train that: model=FOLDER"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ancestor:
    """A run that trained it; or an adapter of others that one began with, of which nothing else is known."""

    run: str
    recipe: str
    data: str = ""
    steps: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Descent:
    """Where an adapter comes from, in words that others can use."""

    base: str
    hub: str | None = None
    sha256: str = ""
    """The hash of the base's files as they were trained on (hashes.py)."""
    targets: str = ""
    """lora_targets, as they were set."""
    runs: Sequence[Ancestor] = ()
    """The oldest first; the last one made it."""

    @property
    def words(self) -> str:
        """The descent for a page in Markdown."""
        return " → ".join([f"`{Path(self.base).name}`", *(line_of(run) for run in self.runs)])


def line_of(run: Ancestor) -> str:
    return f"{run.recipe} `{run.run}`" + (f" ({run.data}, {run.steps} steps)" if run.data else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapter:
    folder: Path
    config: Mapping[str, Any]
    """Its adapter_config.json."""
    targets: str
    hash: str
    descent: Descent | None = None
    named_base: str = field(default="")
    """The base as its config names it, where nothing tells of its descent."""

    @property
    def base(self) -> str:
        """The model that a launch without one takes."""
        return (self.descent.hub or self.descent.base) if self.descent else self.named_base

    @property
    def name(self) -> str:
        run = self.descent.runs[-1].run if self.descent and self.descent.runs else ""
        return run or as_name(self.folder.parent.name if self.folder.name == paths.ADAPTER else self.folder.name)

    @property
    def runs(self) -> Sequence[Ancestor]:
        """What is known of how it was trained."""
        return self.descent.runs if self.descent else [Ancestor(run=self.name, recipe="adapter")]

    @property
    def line(self) -> str:
        """Its descent on one line."""
        return " → ".join([Path(self.base or "?").name, *(line_of(run).replace("`", "") for run in self.runs)])

    @property
    def folder_name(self) -> str:
        """The name of its folder on each node."""
        return f"{as_name(self.name)}-{self.hash[:12]}"

    @property
    def files(self) -> dict[str, SizeAndHash]:
        return {name: size_and_hash(self.folder / name) for name in FILES if (self.folder / name).is_file()}


def find(name: str, home: Path) -> Adapter:
    """The adapter of that name. `home`: below which runs lie, and what was fetched."""
    typed = Path(name).expanduser()
    places = [typed, typed / paths.ADAPTER]
    places += [paths.results(home, name) / paths.ADAPTER] if is_name(name) else []
    for folder in places:
        if (folder / CONFIG).is_file():
            return read(folder.resolve())
    if typed.is_dir():
        raise BadInput("adapter: this folder holds no adapter: it has no adapter_config.json", f"folder: {typed}")
    if HUB_ID.fullmatch(name):
        from train.hub import hub_adapter

        return read(hub_adapter(name, FILES))
    raise BadInput(
        f"adapter: there is no run '{name}' with an adapter, no folder here, and it is no hub id (owner/name)",
        fix="./motley runs shows which runs are done",
    )


def read(folder: Path) -> Adapter:
    refuse_links(folder, (folder / name for name in FILES if (folder / name).exists()))
    config = read_json(folder / CONFIG)
    if not (folder / WEIGHTS).is_file():
        raise BadInput(f"adapter: it has no {WEIGHTS}, and pickled weights are not loaded", f"folder: {folder}")
    if what := why_not(config):
        begun = str(config.get("init_lora_weights", ""))
        fix = CONVERT if begun.startswith(CHANGES_BASE[:-1]) else MERGE
        fix = ANOTHER if config.get("alora_invocation_tokens") else fix
        raise BadInput(f"adapter: it {what}, and no run here can go on with that", f"folder: {folder}", fix)
    descent, held = descent_of(folder), targets_in(folder / WEIGHTS)
    return Adapter(
        folder=folder,
        config=config,
        targets=(descent.targets if descent else "") or held,
        hash=folder_hash(folder, (CONFIG, WEIGHTS)),
        descent=descent,
        named_base=word(config.get("base_model_name_or_path") or ""),
    )


def read_json(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > LARGEST:
            raise ValueError("it is too large")
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise BadInput(f"adapter: its {file.name} cannot be read: {error}", f"file: {file}") from None


def why_not(config: Mapping[str, Any]) -> str:
    """Why a run cannot begin with it, as the rest of a sentence."""
    if config.get("peft_type") != "LORA":
        return f"is of the kind {plain(str(config.get('peft_type')))}, not LoRA"
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not (isinstance(rank, int) and rank > 0 and isinstance(alpha, int | float) and 0 < alpha < math.inf):
        return "has a rank that is no whole number above 0, or an alpha that is no number above 0"
    if scores(config):
        return "gives answers a score (a reward model)"
    if config.get("bias", "none") != "none":
        return "trains biases beside it"
    if str(config.get("init_lora_weights", "")).startswith(CHANGES_BASE):
        return f"was begun as {plain(str(config['init_lora_weights']))}, which changes the base"
    return next((why for name, why in NOT_HERE.items() if config.get(name)), "")


def scores(config: Mapping[str, Any]) -> bool:
    """Whether it is a reward model's, which has a head in place of a language model's."""
    return config.get("task_type") == "SEQ_CLS"


def targets_in(file: Path) -> str:
    """The layers that it is for, by the names of its tensors."""
    names = {name.partition(".lora_")[0].rpartition(".")[2] for name in weight_files.header(file) if ".lora_" in name}
    if not names:
        raise BadInput("adapter: its file holds no weights of a LoRA", f"file: {file}")
    return ",".join(sorted(names))


def descent_of(folder: Path) -> Descent | None:
    if not (folder / DESCENT).is_file():
        return None
    written = read_json(folder / DESCENT)
    try:
        runs = [
            Ancestor(run=word(run["run"]), recipe=word(run["recipe"]), data=word(run["data"]), steps=int(run["steps"]))
            for run in written["runs"]
        ]
        base, hub, sha256, targets = (word(written.get(key) or "") for key in ("base", "hub", "sha256", "targets"))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadInput(f"adapter: its {DESCENT} is not as Motley writes it", f"folder: {folder}", "delete it") from None
    return Descent(base=base, hub=hub or None, sha256=sha256, targets=targets, runs=runs)


def word(text: object) -> str:
    """What somebody else's file says, on one line."""
    return " ".join(plain(str(text)).split())[:200]


def write_descent(folder: Path, descent: Descent) -> None:
    write_atomic(folder / DESCENT, (json.dumps(asdict(descent), indent=1, ensure_ascii=False) + "\n").encode())


def asked(values: Settings, home: Path, given_hash: str = "") -> Settings:
    """The settings with what follows from the adapter; a setting that says otherwise is refused."""
    adapter = find(str(values["adapter"]), home)
    if values.get("method") == "full":
        fix = "leave one of the two out; ./motley export --to merged makes a model of base and adapter"
        raise BadInput("adapter: method=full trains the base's own weights and has no adapter", fix=fix)
    if given_hash not in ("", adapter.hash):
        raise BadInput(
            "the adapter is not the one that the run was launched with: another one makes another run",
            f"adapter: {adapter.folder}",
            "put the old one back, or begin a new run with another name",
        )
    of_adapter: Settings = {
        "lora_r": adapter.config["r"],
        "lora_alpha": adapter.config["lora_alpha"],
        "lora_targets": adapter.targets,
        "rslora": bool(adapter.config.get("use_rslora")),
        "dora": bool(adapter.config.get("use_dora")),
    }
    for name, value in of_adapter.items():
        if name in values and values[name] != value and not same_targets(name, values[name], value):
            raise BadInput(f"{name}: the adapter has {value}, {values[name]} is asked for", fix=f"leave {name} out")
    defaults = {"model": adapter.base} if adapter.base else {}
    if (template := adapter.folder / TEMPLATE).is_file():
        defaults["chat_template"] = str(template)
    return {**defaults, **values, **of_adapter, "adapter": str(adapter.folder), "adapter_hash": adapter.hash}


def same_targets(name: str, one: Any, other: Any) -> bool:
    return name == "lora_targets" and {*str(one).split(",")} == {*str(other).split(",")}


def require_base(adapter: Adapter, model: Model) -> None:
    """Compares hashes where a folder here is the model; else the names that the hub knows. Each node compares hashes
    before the first step (`require_hash`)."""
    descent = adapter.descent
    if descent and descent.sha256 and model.source == "folder" and model.folder:
        return require_hash(adapter, base_hash(model.folder), model.name)
    if descent:
        fits = descent.hub == model.hub if descent.hub or model.hub else descent.base == model.name
    else:
        names = {adapter.named_base, Path(adapter.named_base).name}
        fits = not names.isdisjoint({model.hub, model.hub_4bit, model.name})
    if not fits:
        raise another_base(adapter, model.name)
    return None


def require_hash(adapter: Adapter, sha256: str, model: str) -> None:
    if adapter.descent and adapter.descent.sha256 not in ("", sha256):
        raise another_base(adapter, model)


def another_base(adapter: Adapter, model: str) -> BadInput:
    wanted = adapter.base or "a model that it does not name"
    return BadInput(
        f"adapter: {adapter.name} was trained on {Path(wanted).name}, and {model} is not that model with the same "
        "weights",
        f"adapter: {adapter.folder}",
        "leave model out, or name the adapter's own base, held as it was then (load_in)",
    )
