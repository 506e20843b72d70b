"""A recipe of one's own, a file with a few functions: looked at here, and never run (docs/recipes.md).

settings = {"hidden": 64}       its own settings with their defaults, and other defaults of those that every run has
rows(settings)                  name → numbers, all of one length: what is trained on
model(settings)                 a torch.nn.Module
loss(model, batch)              one number for each row of the batch
metrics(model, batch)           if it is there: name → one number for each row
"""

from __future__ import annotations

import ast
import hashlib
import keyword
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from train.errors import BadInput
from train.plan.values import Settings

GIVES = {"rows": ("settings",), "model": ("settings",), "loss": ("model", "batch")}
MAY_GIVE = {"metrics": ("model", "batch")}
SETTINGS = "settings"
PAGE = "docs/recipes.md has one of 40 lines"


@dataclass(frozen=True, slots=True)
class OwnFile:
    path: Path
    sha256: str
    settings: Settings
    """The recipe's own settings and their defaults, as the file has them."""


def is_file(recipe: object) -> bool:
    """Whether that is a file, and not the name of a recipe that Motley has."""
    return str(recipe).endswith(".py")


def read(name: str) -> OwnFile:
    path, text, tree = parsed(name, "recipe", PAGE)
    require_functions(path, tree)
    require_alone(path, tree, "recipe")
    return OwnFile(path, hashlib.sha256(text).hexdigest(), settings_in(path, tree))


def parsed(name: str, setting: str, page: str) -> tuple[Path, bytes, ast.Module]:
    """A file of Python that a setting names, as its path, its text and what it says; nothing of it runs."""
    path = Path(name).expanduser().resolve()
    try:
        text = path.read_bytes()
        tree = ast.parse(text)
    except OSError as error:
        raise BadInput(f"{setting}: there is no file {name} ({error.strerror})", fix=f"name a file; {page}") from None
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        what = f"{setting}: this is not Python: {error.args[0]}"
        raise BadInput(what, f"file: {path}{line}", "fix it there") from None
    return path, text, tree


def require_functions(path: Path, tree: ast.Module) -> None:
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if missing := [name for name in GIVES if name not in functions]:
        raise BadInput(
            f"recipe: it does not give {' and '.join(missing)}",
            f"file: {path}",
            f"add: {'; '.join(signature(name) for name in missing)}   ({PAGE})",
        )
    for name, arguments in (GIVES | MAY_GIVE).items():
        if name in functions and not takes(functions[name].args, len(arguments)):
            where = f"file: {path}, line {functions[name].lineno}"
            raise BadInput(
                f"recipe: {name} is called with {' and '.join(arguments)}", where, f"write: {signature(name)}"
            )


def signature(name: str) -> str:
    return f"def {name}({', '.join((GIVES | MAY_GIVE)[name])}):"


def takes(args: ast.arguments, count: int) -> bool:
    """Whether a call with so many values fits."""
    most = len(args.posonlyargs) + len(args.args)
    open_ends = args.vararg is not None
    return most - len(args.defaults) <= count and (count <= most or open_ends) and None not in args.kw_defaults


def require_alone(path: Path, tree: ast.Module, setting: str) -> None:
    """It is the one file that comes to the nodes: nothing that lies beside it is there."""
    for line, module in imported(tree):
        beside = path.parent / module
        is_beside = beside.with_name(f"{module}.py").is_file() or (beside / "__init__.py").is_file()
        if not module or (is_beside and module not in sys.stdlib_module_names):
            what = f"it imports {module}, which lies beside it" if module else "it imports what lies beside it"
            raise BadInput(
                f"{setting}: {what}: this one file alone comes to the nodes",
                f"file: {path}, line {line}",
                "put what it needs of that into the file itself",
            )


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and package of each import; no name where it is relative."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "" if node.level else (node.module or "").partition(".")[0]


def settings_in(path: Path, tree: ast.Module) -> Settings:
    for node in tree.body:
        names = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(name, ast.Name) and name.id == SETTINGS for name in names):
            try:
                value = ast.literal_eval(node.value)  # type: ignore[attr-defined]
            except (ValueError, TypeError):
                value = None
            return checked(value, f"file: {path}, line {node.lineno}")
    return {}


def checked(settings: object, where: str) -> Settings:
    example = 'write: settings = {"hidden": 64, "rate": 0.5, "name": "word", "deep": False}'
    if not isinstance(settings, Mapping):
        raise BadInput("recipe: settings is not plain names with plain values", where, example)
    for name, value in settings.items():
        if not (isinstance(name, str) and name.isidentifier() and name.islower()):
            raise BadInput(f"recipe: {name!r} cannot name a setting: small letters, digits and _", where, example)
        if keyword.iskeyword(name):
            raise BadInput(f"recipe: {name!r} cannot name a setting: it is a word of Python", where, "choose another")
        if not isinstance(value, (bool, int, float, str)):
            raise BadInput(f"recipe: settings: {name} is no number, word or True/False", where, example)
    return dict(settings)
