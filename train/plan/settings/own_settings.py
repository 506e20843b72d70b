"""The settings of a recipe of one's own (recipe=./mine.py): those that every run has, and what the file itself says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, make_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from train.errors import BadInput
from train.files import file_hash
from train.plan.home_folder import refuse_home
from train.plan.model.catalogue import Dataset, Model, is_hidden, resolve_dataset
from train.plan.run_name import as_name
from train.plan.settings import own_recipe
from train.plan.settings.every_run import RunConfig, option
from train.plan.values import Settings, coerce
from train.runlog import paths

NOT_ITS_OWN = frozenset(
    {"recipe", "recipe_hash", "run", "home", "resume", "device", "shapes", "max_seq_length", "max_bad", "model"}
    | {"backend", "load_in", "nodes", "follow", "queue", "config", "json", "out", "format", "date", "help"}
    | {"known_only", "links", "link_mbit", "wireless", "fixed", "main_memory", "tflops"}
)
"""Names that a recipe can neither take nor give another default: they mean something else, or nothing to it."""


@dataclass(frozen=True, kw_only=True)
class OwnConfig(RunConfig):
    """The settings of a run with one recipe file: `settings_class` adds what stands in it."""

    PREPARES: ClassVar[str] = "train.recipes.own.make_rows"
    RESULT: ClassVar[str] = paths.MODEL
    ROW_UNIT: ClassVar[str] = "numbers"
    OWN: ClassVar[tuple[str, ...]] = ()
    """Names of the file's own settings."""

    recipe: str = option("", "node", "the file of a recipe of your own")
    recipe_hash: str = option("", "math", "the file's SHA-256; found automatically")
    dataset: str = option("", "node", "a file, a folder, or a name of the catalogue; empty: the recipe needs none")
    rows_per_step: int = option(32, "math", "rows of one optimizer step, over all nodes together")
    learning_rate: float = option(1e-3, "math", "peak learning rate")
    gradient_checkpointing: str = option("false", "agree", "for language models alone", ("false",))

    def __post_init__(self) -> None:
        path = Path(self.recipe).expanduser().resolve()
        sha256 = file_hash(path)
        if self.recipe_hash not in ("", sha256):
            raise BadInput(
                "the recipe is not the file that the run was launched with: another file is another run",
                f"file: {path}",
                "put the old one back, or begin a new run with another name",
            )
        object.__setattr__(self, "recipe", str(path))
        object.__setattr__(self, "recipe_hash", sha256)
        super().__post_init__()

    @property
    def own(self) -> Settings:
        """What the file's functions are given."""
        return {name: getattr(self, name) for name in self.OWN} | {"seed": self.seed}

    @property
    def title(self) -> str:
        return title_of(Path(self.recipe))

    @property
    def subject(self) -> str:
        return f"{Path(self.recipe).name} ·"

    @property
    def about(self) -> str:
        return "all weights"

    def start_model(self, home: Path | None = None) -> Model:
        return Model(name=self.title, source="new", reason=f"what {Path(self.recipe).name} builds")

    def data(self) -> Dataset:
        folder = Path(self.dataset).expanduser()
        if not self.dataset:
            return Dataset(name="", reason="none: the recipe makes its rows itself", embedded="none")
        return everything_in(self.dataset, folder) if folder.is_dir() else resolve_dataset(self.dataset)

    @property
    def file_to_bring(self) -> tuple[str, Path] | None:
        return "recipe", Path(self.recipe)

    def prepare_words(self, model_folder: str, file: str = "") -> list[str]:
        chosen = {name: getattr(self, name) for name in (*self.OWN, "seed", "eval_fraction")}
        return [f"--recipe={file}", *(f"--{name.replace('_', '-')}={value}" for name, value in chosen.items())]


def title_of(file: Path) -> str:
    return as_name(file.stem)


def everything_in(name: str, folder: Path) -> Dataset:
    refuse_home(folder)
    files = [p for p in folder.rglob("*") if p.is_file() and not is_hidden(p.relative_to(folder))]
    if not files:
        raise BadInput("this folder holds no file", f"folder: {folder}")
    reason = f"{name} is a folder of {len(files)} files of this machine"
    return Dataset(name=as_name(folder.resolve().name), reason=reason, files=tuple(sorted(files)), folder=folder)


def of_file(name: str) -> type[OwnConfig]:
    """The settings of the recipe in this file."""
    file = own_recipe.read(name)
    return settings_class(file.settings, str(file.path))


def settings_class(values: Mapping[str, Any], where: str) -> type[OwnConfig]:
    """The class of a recipe's settings. `values`: the file's own, and other defaults of general ones."""
    of_every_run = {spec.name for spec in fields(OwnConfig)}
    taken = sorted(
        name for name in values if name in NOT_ITS_OWN or (hasattr(OwnConfig, name) and name not in of_every_run)
    )  # the latter would hide what a run asks of its settings, such as `data` or `sizes`
    if taken:
        raise BadInput(
            f"recipe: settings: {taken[0]} has another meaning here", f"file: {where}", "choose another name"
        )
    return _made(tuple((name, type(value).__name__, value) for name, value in values.items()))


@lru_cache
def _made(values: tuple[tuple[str, str, Any], ...]) -> type[OwnConfig]:
    known = {spec.name: spec for spec in fields(OwnConfig)}
    added: list[tuple[str, str, Any]] = []
    for name, kind, value in values:
        if spec := known.get(name):
            meta = spec.metadata
            default = coerce(spec, value)
            added.append((name, str(spec.type), option(default, meta["scope"], meta["help"], meta["choices"])))
        else:
            added.append((name, kind, option(value, "math", "a setting of this recipe's own")))
    own = tuple(name for name, _, _ in values if name not in known)
    return make_dataclass(
        "OwnConfig",
        added,
        bases=(OwnConfig,),
        namespace={"OWN": own, "COUNTED": ("recipe_hash", *own)},
        frozen=True,
        kw_only=True,
    )
