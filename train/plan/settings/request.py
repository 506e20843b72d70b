"""The settings of a run, checked before anything is connected to, fetched or started. All findings at once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from train.cache import home_dir
from train.errors import BadInput
from train.plan.model import adapters
from train.plan.model.catalogue import Dataset, Model, catalogue, refuse_links
from train.plan.settings import own_recipe
from train.plan.settings.file_settings import PLACES
from train.plan.settings.read_settings import (
    RECIPES,
    SETTINGS,
    RunConfig,
    Settings,
    load_config,
    names_of,
    nearest,
    recipe_of,
)

HERE_ONLY = ("home",)
"""Settings that belong to one machine and are no business of whoever launches on several."""
FOUND = ("rewards_hash", "adapter_hash")
"""What is found out of other settings: nobody gives it."""
HELP = {name: spec.metadata["help"] for name, spec in SETTINGS.items()}
MATH = sorted(
    {spec.name for kind in RECIPES.values() for spec in fields(kind) if spec.metadata["scope"] == "math"},
    key=lambda name: (name != "recipe", name),
)
DECLINED = {
    "modules_to_save": "embeddings and output stay as the base has them, as they may be streamed, cut or tied to each "
    "other, and whole they would travel in every step; for new tokens: method=full, on a base that has them",
}
"""What people know from elsewhere, and why it is not here."""
COUNTS_WITH = {
    "sync": ("local", ("local_steps", "outer_learning_rate", "outer_momentum")),
    "method": ("lora", ("lora_r", "lora_alpha", "lora_targets", "rslora")),
}
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """The run that is asked for, checked; and where it begins."""

    given: Settings
    config: RunConfig
    model: Model
    dataset: Dataset
    home: Path | None = None
    """Where models that were fetched here lie."""
    step: int = 0
    why: str = ""
    """Which run it continues; empty for a new one."""
    from_start: bool = False
    """Whether files of an earlier run of this name are to be moved aside first."""
    begun_again: int = 0
    """How many times a run of this name was: files of fewer times are of an earlier one."""

    @property
    def settings(self) -> Settings:
        everything = self.config.scoped("math", "agree", "node")
        return {name: value for name, value in everything.items() if name not in HERE_ONLY}


class Findings(list[str]):
    """What is wrong, sentence by sentence."""

    def attempt(self, read: Callable[..., T], *args: Any) -> T | None:
        """What it reads; None where that is a finding."""
        try:
            return read(*args)
        except BadInput as wrong:
            if str(wrong) not in self:
                self.append(str(wrong))
            return None


LONGEST = 255
"""Bytes of a file's name; of a longer one no file system says that it is not there."""


def refuse_odd_names(given: Settings) -> None:
    for name in (*PLACES, "tasks"):
        for user in re.findall(r"(?:^|,)\s*(~[^/,\s]+)", str(given.get(name, ""))):
            if os.path.expanduser(user) == user:  # noqa: PTH111 - Path's raises what nobody catches
                raise BadInput(f"{name}: there is no user '{user[1:]}', so no folder {user}", fix="fix: give its path")
    for name in PLACES[:-1]:  # a chat template may be its own text
        for part in re.split(r"[/,\s]", str(given.get(name, ""))):
            if any("\ud800" <= letter <= "\udfff" for letter in part):  # so Python shows bytes that are no UTF-8
                raise BadInput(f"{name}: {part!r} is no name in UTF-8", fix="fix: give the file another name")
            if len(part.encode()) > LONGEST:
                raise BadInput(
                    f"{name}: a name has at most {LONGEST} letters, {part[:20]}… has {len(part)}",
                    fix=f"fix: give {name} the name of a file, or one that Motley or the hub knows",
                )


def read(
    values: Settings,
    home: Path | None = None,
    *,
    also: Iterable[str] = (),
    required: str = "",
    what: str = "setting",
    default_data: bool = True,
) -> Request:
    """All findings at once: of each value, then of all together. What `model` and `dataset` mean is found out here;
    without `default_data` a data set that is not named is none."""
    refuse_odd_names(values)
    known = known_names(values, also)
    if wrong := unknown(values, known, what):
        raise BadInput("\n".join(wrong))
    findings = Findings()
    given = {name: value for name, value in values.items() if name in known and name not in also}
    chosen = recipe_of(given)
    adapter = found_adapter(given, chosen, home, findings)
    missing = [name for name in required.split(",") if name in chosen.REQUIRED and given.get(name, "") == ""]
    recipe = {name: given[name] for name in ("recipe", "trains") if given.get(name)}
    for name, value in given.items():
        if name not in chosen.TOGETHER:
            findings.attempt(load_config, {**recipe, name: value})
    config = None if findings else findings.attempt(load_config, given)
    if config:
        findings.attempt(refuse_idle, config)
    findings[:0] = [f"{name}: a value is missing{example(name, given)}" for name in missing if needed(name, given)]
    meant: Settings = {name: given[name] for name in ("model", "dataset") if name in given.keys() & names_of(chosen)}
    named = config or findings.attempt(load_config, {**recipe, **meant})
    model = findings.attempt(named.start_model, home) if named else None
    dataset: Dataset | None = Dataset(name="", reason="none is named")
    if named and (default_data or "dataset" in given):
        dataset = findings.attempt(named.data)
    if adapter and model:
        findings.attempt(adapters.require_base, adapter, model)
    tokenizer = findings.attempt(config.tokenizer_model, home) if config else None
    for folder, files in sent_from_here([model, tokenizer], dataset):
        findings.attempt(refuse_links, folder, files)
    if findings or not (config and model and dataset):
        raise BadInput("\n".join(findings))
    return Request(given=given, config=config, model=model, dataset=dataset, home=home)


def refuse_idle(config: RunConfig) -> None:
    """Refuses, of a new run, what would have no effect; one that continues another has its settings from before."""
    if config.resume not in ("auto", "never"):
        return
    for other, (value, names) in COUNTS_WITH.items():
        chosen = getattr(config, other, value)
        for name in names if chosen != value else ():
            usual = type(config).__dataclass_fields__[name].default
            if getattr(config, name) != usual:
                what = f"{name}: it counts only with {other}={value}, and {other} is {chosen}"
                raise BadInput(what, fix=f"fix: {other}={value}, or {name}={usual}")


def sent_from_here(models: Iterable[Model | None], dataset: Dataset | None) -> Iterator[tuple[Path, list[Path]]]:
    """The folders of this computer that a launch sends, each with the files that go."""
    for model in models:
        if model and model.source == "folder" and model.folder:
            yield model.folder, [path for path in model.folder.rglob("*") if path.is_file()]
    if dataset and dataset.folder and not dataset.listed:
        yield dataset.folder, [path for path in dataset.files if path != dataset.file]


def known_names(values: Settings, also: Iterable[str] = ()) -> list[str]:
    """What a run of this recipe may be given."""
    of_file = names_of(recipe_of(values)) if own_recipe.is_file(values.get("recipe", "")) else ()
    return [*dict.fromkeys([*settings(), *of_file]), *also]


def unknown(names: Iterable[str], known: Collection[str], what: str) -> list[str]:
    return [
        f"{name}: {DECLINED[name]}"
        if name in DECLINED
        else f"unknown {what} '{name}'{nearest(name, known).replace(', did', ' — did')}"
        for name in names
        if name not in known
    ]


def found_adapter(
    given: Settings, chosen: type[RunConfig], home: Path | None, findings: Findings
) -> adapters.Adapter | None:
    """The adapter that is named; from here on the settings name its folder, and its base where they name no model."""
    if not given.get("adapter") or "adapter" not in names_of(chosen):
        return None
    adapter = findings.attempt(adapters.find, str(given["adapter"]), home or home_dir())
    if adapter is None:
        del given["adapter"]
        given.setdefault("model", "tiny")  # which one it would have brought is not what is wrong
        return None
    given["adapter"] = str(adapter.folder)
    if adapter.base:
        given.setdefault("model", adapter.base)
    return adapter


def settings() -> list[str]:
    return [name for name in HELP if name not in (*HERE_ONLY, *FOUND)]


def needed(name: str, given: Mapping[str, Any]) -> bool:
    """Whether it must be named. The smallest model is for a first try: what it trains on does not matter."""
    return name != "dataset" or given.get("model") != "tiny"


def example(name: str, given: Mapping[str, Any]) -> str:
    if name == "dataset":
        pictures = given.get("recipe") == "images"
        own = "a folder with a sub-folder for each class" if pictures else "a file of yours, such as ./my-notes.jsonl"
        names = [known for known, entry in catalogue()["datasets"].items() if ("package" in entry) == pictures]
        return f"\nit is {own}, a hub id (owner/name), or one of: {' '.join(names)}\nfix: --dataset NAME"
    return f"; the catalogue has {' '.join(catalogue()['models'])}" if name == "model" else ""
