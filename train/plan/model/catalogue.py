"""What a name means: an entry of catalogue.yml, else a hub id, else a folder or file here; and it says which."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, cast

from train.cache import home_dir
from train.errors import BadInput
from train.layout import BASE_MODELS
from train.nearest_word import meant, models_meant
from train.plan.home_folder import refuse_home
from train.plan.model.counts import Counts
from train.plan.model.picture_facts import PictureFacts
from train.plan.run_name import as_name

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
HUB_DATA = re.compile(rf"({HUB_ID.pattern})(:[\w.-]+(/[\w.-]+)*)?")
"""…:config/split where it has several."""
FETCHED = ".motley-source.json"
"""Marks a folder that `python -m train fetch` made, and says where its files are from."""
Source = Literal["catalogue", "hub", "folder", "new"]
"""new: it begins with random weights."""
TEXTS = (".txt", ".md", ".py", ".jsonl")
"""Files of a folder that is a data set."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """The shape of a decoder: all that memory and traffic are computed from."""

    family: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    positions: int
    on_disk: str = ""
    """4bit or 8bit where the model's files are quantised already, by bitsandbytes."""
    counts: Counts | None = None
    """Its weights, where the model itself was counted."""
    wrapper: bool = False
    """Whether it is the text part of a model for pictures or sounds as well."""


AnyFacts: TypeAlias = Facts | PictureFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    name: str
    source: Source
    reason: str
    hub: str | None = None
    hub_4bit: str | None = None
    embedded: str | None = None
    gated: bool = False
    facts: AnyFacts | None = None
    folder: Path | None = None
    limits: Mapping[str, str] = field(default_factory=dict)
    """What it cannot do and why, where that is known without a proof: in verdict.py's words."""

    @property
    def local_name(self) -> str:
        """The name of its folder below models/base: those of two owners' models of one name must differ."""
        return as_name(self.name) if self.source != "hub" or not self.hub else self.hub.replace("/", "--")


class HubConfig(TypedDict, total=False):
    """A model's config.json, as far as it is read here."""

    model_type: str
    hidden_size: int
    intermediate_size: int
    intermediate_per_token: int
    """How wide all experts are together that a token goes to: the proof tells it of a mixture."""
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int | None
    head_dim: int | None
    vocab_size: int
    tie_word_embeddings: bool
    max_position_embeddings: int | None
    original_max_position_embeddings: int
    rope_parameters: dict[str, Any] | None
    rope_scaling: dict[str, Any] | None
    quantization_config: dict[str, Any] | None
    attention_bias: bool
    mlp_bias: bool
    text_config: HubConfig
    """What a wrapper with pictures or sounds says of its text model."""


@functools.cache
def catalogue() -> dict[str, Any]:
    import yaml  # the checks of a graphics card run without it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # a tenth of the time, at each start of a worker
    loaded: dict[str, Any] = yaml.load(Path(__file__).with_name("catalogue.yml").read_text(), loader)  # noqa: S506
    return loaded


def resolve_model(name: str, home: Path | None = None) -> Model:
    """The model that a name means. `home`: where models that were fetched here lie."""
    entry_name, entry = _entry("models", name)
    if entry:
        usual: dict[str, Any] = {"head_dim": entry["hidden"] // entry["heads"], "tied": False}
        shape = usual | {key: entry[key] for key in Facts.__slots__ if key in entry}
        if "counts" in entry:
            shape["counts"] = Counts.from_json({"layers": entry["layers"]} | entry["counts"])
        copy = (home or home_dir()) / BASE_MODELS / entry_name
        here = copy if (copy / "config.json").is_file() else None
        reason = f"{entry_name} is in the catalogue" + (f", copied to {here}" if here else "")
        known = {key: entry[key] for key in ("hub", "hub_4bit", "embedded", "gated", "limits") if key in entry}
        return Model(name=entry_name, source="catalogue", reason=reason, facts=Facts(**shape), folder=here, **known)
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return Model(
            name=folder.resolve().name,
            source="folder",
            reason=f"{name} is a folder of this machine",
            folder=folder,
        )
    if HUB_ID.fullmatch(name) and not folder.exists():
        return Model(name=name.split("/")[1], source="hub", reason=f"{name} is a Hugging Face hub id", hub=name)
    if folder.is_dir():
        raise BadInput("this folder holds no model: it has no config.json", f"folder: {folder}")
    raise _unknown("model", name, catalogue()["models"])


def model_facts(model: Model) -> Facts:
    """The shape of a language model."""
    return model.facts if isinstance(model.facts, Facts) else facts_of(*config_of(model))


def config_of(model: Model) -> tuple[HubConfig, str]:
    """A model's config.json and where it is; for a hub id that file (a kilobyte) is fetched."""
    if model.folder:
        return read_config(model.folder), str(model.folder)
    from train.hub import hub_file

    assert model.hub
    return read_config(hub_file(model.hub, "config.json").parent), model.hub


def read_config(folder: Path) -> HubConfig:
    file = folder / "config.json"
    try:
        return cast(HubConfig, dict(json.loads(file.read_text())))
    except (ValueError, TypeError) as error:
        raise BadInput(f"config.json is broken: {error}", f"file: {file}", "copy or fetch the model again") from None


SHAPE = (
    *("hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "vocab_size", "max_position_embeddings"),
)


PER_TOKEN = "intermediate_per_token"  # noqa: S105
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def facts_of(config: HubConfig, where: str) -> Facts:
    """The facts in a model's own config.json."""
    is_wrapper, config = "text_config" in config, text_config(config)
    family = config.get("model_type", "?")
    if PER_TOKEN not in config and any(count(config, name) > 1 for name in EXPERTS):
        raise BadInput(
            f"a '{family}' model is a mixture of experts: what it takes is known when it is proven",
            f"model: {where}",
            "./motley check-model NAME proves it here; a launch does so on the head",
        )
    if lacking := [name for name in SHAPE if count(config, name) < 1]:
        raise BadInput(
            f"config.json lacks '{lacking[0]}': the memory of this '{family}' model is not known",
            f"model: {where}",
            "copy or fetch the model again, or choose another",
        )
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    return Facts(
        family=family,
        hidden=hidden,
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=count(config, "num_key_value_heads") or heads,
        head_dim=count(config, "head_dim") or hidden // heads,
        intermediate=count(config, PER_TOKEN) or config["intermediate_size"],
        vocab=config["vocab_size"],
        tied=config.get("tie_word_embeddings", family == "gemma2"),
        positions=positions(config),
        on_disk=form_on_disk(config.get("quantization_config"), where),
        wrapper=is_wrapper,
    )


def count(config: HubConfig, name: str) -> int:
    """A number of the config; 0 where it has none by that name."""
    value = config.get(name)
    return value if isinstance(value, int) else 0


def text_config(config: HubConfig) -> HubConfig:
    """What is trained of a wrapper with pictures or sounds: its text model, as the config has it."""
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else config


def positions(config: HubConfig) -> int:
    """The length up to which a row is computed alike whatever rows are beside it: beyond the original ones `longrope`
    takes other factors for all rows that are computed at a time with a longer one. 0 where the model does not say."""
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    most = config.get("max_position_embeddings") or 0
    if isinstance(rope, dict) and "longrope" in (rope.get("rope_type"), rope.get("type")):
        most = rope.get("original_max_position_embeddings") or config.get("original_max_position_embeddings") or most
    return int(most)


def form_on_disk(quantised: dict[str, Any] | None, where: str) -> str:
    """What a model's config.json says of how its files are quantised."""
    if quantised and not isinstance(quantised, dict):
        raise BadInput("config.json is broken: quantization_config", f"model: {where}", "copy or fetch the model again")
    if not quantised:
        return ""
    form = next((form for form in ("4bit", "8bit") if quantised.get(f"load_in_{form}")), "")
    if not form:
        raise BadInput(
            f"the model's files are quantised by {quantised.get('quant_method', 'an unknown method')}, which cannot be "
            "trained on",
            f"model: {where}",
            "choose the model before it was quantised, or its copy by bitsandbytes (its name often ends in bnb-4bit)",
        )
    return form


def _entry(kind: str, name: str) -> tuple[str, dict[str, Any] | None]:
    for entry_name, entry in catalogue()[kind].items():
        if name == entry_name or name in entry.get("aliases", ()):
            return entry_name, entry
    return name, None


def on_hub(name: str) -> str:
    """The hub id in the address of a page there; empty where it is none."""
    page = re.fullmatch(rf"(?:https?://)?(?:huggingface\.co|hf\.co)/(?:datasets/)?({HUB_ID.pattern})(?:[/?#].*)?", name)
    return page[1] if page else ""


def _unknown(kind: str, name: str, names: Any) -> BadInput:
    near = on_hub(name) or models_meant(name, names) or meant(name, names)
    hint = f"did you mean {near}?" if near else f"the catalogue has: {', '.join(names)}"
    return BadInput(
        f"there is no {kind} '{name}': not in the catalogue, no hub id (owner/name), no folder here",
        fix=hint,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """What is taken of a data set (data_sets.py)."""

    first: str = ""
    end: str = ""
    """The record from which on, and the one before which it ends: a number, or a part of all as 5%."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """A key that Motley knows → the column that is meant."""

    @property
    def words(self) -> str:
        """The selection for the end of a sentence."""
        cut = f", its records [{self.first}:{self.end}]" if self.first or self.end else ""
        return cut + "".join(f", {theirs} as {ours}" for ours, theirs in self.columns.items())

    @property
    def typed(self) -> str:
        """The selection as it stands behind the data set's name."""
        cut = f"[{self.first}:{self.end}]" if self.first or self.end else ""
        pairs = "&".join(f"{ours}={theirs}" for ours, theirs in self.columns.items())
        return cut + (f"?{pairs}" if pairs else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    name: str
    reason: str
    hub: str | None = None
    embedded: str | None = None
    listed: bool = False
    """Whether the catalogue has it."""
    file: Path | None = None
    files: tuple[Path, ...] = ()
    """What `fetch` brought, where it is a folder of that; or the texts of a folder."""
    folder: Path | None = None
    """The folder below which `files` are."""
    passed_over: str = ""
    """What else is below it and will not be trained on, in words."""
    taken: Taken = field(default_factory=Taken)
    parts: tuple[Part, ...] = ()
    """The data sets, where several are trained on together."""

    @property
    def each(self) -> tuple[Part, ...]:
        """Its parts; one data set is all of itself, once."""
        return self.parts or (Part(data=self, weight=1.0),)

    @property
    def local_name(self) -> str:
        return re.sub("[/:]", "--", self.hub) if self.hub and not self.listed else self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One of several data sets."""

    data: Dataset
    weight: float
    """How often each of its rows comes in an epoch."""


def resolve_dataset(name: str, *, folders: bool = False) -> Dataset:
    """The data set that a name means. `folders`: a folder of texts is one, too."""
    entry_name, entry = _entry("datasets", name)
    if entry:
        if "package" in entry:
            raise BadInput(f"the data set {entry_name} is of pictures", fix="use recipe=images")
        reason = f"{entry_name} is in the catalogue"
        return Dataset(
            name=entry_name, reason=reason, hub=entry.get("hub"), embedded=entry.get("embedded"), listed=True
        )
    file = Path(name).expanduser()
    if file.is_file():
        return Dataset(name=file.stem, reason=f"{name} is a file of this machine", file=file)
    if (file / FETCHED).is_file():
        files = tuple(sorted(path for path in file.rglob("*") if path.is_file() and not path.name.startswith(".")))
        return Dataset(name=file.name, reason=f"{name} was fetched from the hub", files=files)
    if file.is_dir() and folders:
        return text_folder(name, file)
    if file.is_dir():
        raise BadInput(
            "this is a folder; a data set is one file", f"folder: {file}", f"name the file: {file}/FILE.jsonl"
        )
    if (hub := HUB_DATA.fullmatch(name)) and not Path(hub[1]).suffix:
        title = as_name(name.partition("/")[2])
        return Dataset(name=title, reason=f"{name} is a Hugging Face hub id", hub=name)
    if ("/" in name or file.suffix) and not on_hub(name):
        raise BadInput(f"there is no file {name}", fix="give the path of a .jsonl, .json, .csv, .txt or .parquet file")
    raise _unknown("data set", name, catalogue()["datasets"])


def text_folder(name: str, folder: Path) -> Dataset:
    refuse_home(folder)
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in TEXTS and path.is_file() and not is_hidden(path.relative_to(folder))
    )
    if not files:
        raise BadInput("this folder holds no text", f"folder: {folder}", f"files that count: *{' *'.join(TEXTS)}")
    return Dataset(
        name=as_name(folder.resolve().name),
        reason=f"{name} is a folder of {len(files)} texts of this machine",
        files=tuple(files),
        folder=folder,
    )


def refuse_links(folder: Path, files: Iterable[Path]) -> None:
    """What lies in a folder may be somebody else's work: no link in it sends a file from outside to the nodes."""
    own = folder.resolve()
    inside = [own, own.parent.parent / "blobs"]  # the hub's cache is made of links to the latter
    places = {place for file in files for place in (file, *file.parents)} - {folder, *folder.parents}
    for link in sorted(place for place in places if place.is_symlink()):
        leads_to = link.resolve()
        if not any(leads_to.is_relative_to(place) for place in inside):
            raise BadInput(
                f"a link leads out of this folder, and what it leads to would be sent to the nodes: {leads_to}",
                f"link: {link}",
                "remove it, or put the files themselves there: cp -rL FOLDER COPY makes a copy without links",
            )


LEFT_BY_SYSTEMS = ("@eadir", "#recycle", "$recycle.bin", "__macosx", "lost+found", "system volume information")


def is_hidden(path: Path) -> bool:
    """Whether it is nothing of a person's: a Synology keeps a small copy of each picture in @eaDir."""
    return any(part.startswith(".") or part.lower() in LEFT_BY_SYSTEMS for part in path.parts)
