"""`rewards=` as a person writes it: looked at here, and never run (docs/rewards.md).

    rewards=./rewards.py                       every reward function of the file, in TRL's form
    rewards=./rewards.py:brevity,exact         one of them, and one that Motley has
    rewards=0.5@./rewards.py:brevity,2@exact   each with a weight

What stands before an @ is a weight, so that it collides with no pattern and no shell reads it.
"""

from __future__ import annotations

import ast
import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from train.errors import BadInput
from train.nearest_word import meant
from train.plan.settings import own_recipe
from train.plan.settings.own_recipe import parsed, require_alone
from train.plan.values import Settings

PAGE = "docs/rewards.md has examples"
FORM = "def NAME(prompts, completions, **columns):"
TAKES = "completions"
"""A function of a file is a reward if it takes this; the others are its helpers."""
ANSWER = "answer"
"""The column that exact and number compare with."""
FILE = "file"
BUILT_IN = {
    "exact": "the answer is the row's answer",
    "number": "the last number of the answer is that of the row's answer",
    "format": "the whole answer matches a pattern, as in format:PATTERN",
    "length": "the answer has at most so many words, as in length:50",
    "json": "the answer is a JSON object or list",
}
NEED_AN_ANSWER = ("exact", "number")
WEIGHT = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+))@")
ENTRY = re.compile(
    r"\s*(?:[-+]?[\d.]+@)?\s*(?:exact|number|json|length:\d+|format:.*|[^\s:]+\.py(?::\w+)?)\s*", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Reward:
    name: str
    """What plan, event log and report call it; no two of a run have the same."""
    kind: str
    """A name of BUILT_IN, or FILE."""
    argument: str
    """The pattern, the number of words, or the file."""
    function: str = ""
    """The function in the file."""
    weight: float = 1.0


def parse(text: str, home: Path) -> tuple[Reward, ...]:
    """The rewards that are named; a file is looked for below `home` where its path does not start at the root."""
    rewards = [reward for entry in entries(text) for reward in rewards_of(entry, home)]
    if not rewards:
        raise BadInput(f"rewards: none is named; there are {', '.join(BUILT_IN)}, and a file of yours", fix=PAGE)
    # One file, since one comes to the nodes, and no function twice: the report has a curve for each name.
    files = sorted({reward.argument for reward in rewards if reward.kind == FILE})
    if len(files) > 1:
        raise BadInput(
            "rewards: two files are named, and one comes to the nodes", " and ".join(files), "make one of them"
        )
    for name, times in Counter(reward.name for reward in rewards).items():
        if times > 1:
            fix = f"name it once, with a weight if it is to count for more: {times}@{name}; or rename a function"
            raise BadInput(f"rewards: {name} is named {times} times", fix=fix)
    return tuple(rewards)


def entries(text: str) -> list[str]:
    """A comma parts two rewards, except in a pattern: there only before what is one."""
    parts: list[str] = []
    for piece in text.split(","):
        in_pattern = bool(parts) and WEIGHT.sub("", parts[-1], count=1).strip().startswith("format:")
        if in_pattern and not ENTRY.fullmatch(piece):
            parts[-1] += f",{piece}"
        elif piece.strip() or len(parts) > 0:
            parts.append(piece)
    if any(not entry.strip() for entry in parts):
        raise BadInput(f"rewards: {text!r} has a comma too many", fix="write: exact,./rewards.py")
    return parts


def rewards_of(entry: str, home: Path) -> list[Reward]:
    given = WEIGHT.match(entry)
    weight = float(given[1]) if given else 1.0
    what = entry[given.end() :].strip() if given else entry.strip()
    if not weight or not math.isfinite(weight):
        raise BadInput(f"rewards: {what} has the weight {weight:g}, so it counts for nothing", fix="leave it out")
    kind, colon, argument = what.partition(":")
    if kind.endswith(".py"):
        return [replace(reward, weight=weight) for reward in of_file(kind, argument, home)]
    if kind not in BUILT_IN:
        fix = f"name one of {', '.join(BUILT_IN)}, or a file as ./rewards.py"
        raise BadInput(f"rewards: there is no '{what}'{nearest(kind, BUILT_IN)}", fix=fix)
    check_argument(kind, argument, bool(colon))
    return [Reward(what if argument else kind, kind, argument, weight=weight)]


def nearest(word: str, known: Iterable[str]) -> str:
    close = meant(word, known)
    return f"; did you mean {close}?" if close else ""


def check_argument(kind: str, argument: str, given: bool) -> None:
    if kind == "length":
        if not argument.isdecimal() or not int(argument):
            raise BadInput("rewards: length takes how many words an answer may have", fix="write: length:50")
    elif kind == "format":
        try:
            re.compile(argument)
        except re.error as error:
            raise BadInput(f"rewards: the pattern {argument!r} is no regular expression: {error}", fix=PAGE) from None
        if not argument:
            raise BadInput("rewards: format takes a regular expression", fix="write: 'format:Answer: .+'")
    elif given:
        raise BadInput(f"rewards: {kind} takes nothing behind it", fix=f"write: {kind}")


def of_file(name: str, function: str, home: Path) -> list[Reward]:
    path, _, tree = parsed(str(home / Path(name).expanduser()), "rewards", PAGE)
    require_alone(path, tree, "rewards")
    functions = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    usual = [name for name, node in functions.items() if not name.startswith("_") and TAKES in names_of(node)]
    chosen = [function] if function else usual
    if not chosen:
        raise BadInput(f"rewards: no function of the file takes {TAKES}", f"file: {path}", f"write: {FORM}   ({PAGE})")
    for each in chosen:
        if each not in functions:
            what = f"rewards: it has no function {each}{nearest(each, functions)}"
            raise BadInput(what, f"file: {path}", f"name one that it has: {', '.join(usual) or 'none yet'}")
        require_form(functions[each], path)
    return [Reward(each, FILE, str(path), each) for each in chosen]


def require_form(node: ast.FunctionDef | ast.AsyncFunctionDef, path: Path) -> None:
    where = f"file: {path}, line {node.lineno}"
    if isinstance(node, ast.AsyncFunctionDef):
        raise BadInput(
            f"rewards: {node.name} is async, and there is nothing that it could wait for", where, "write: def"
        )
    if node.args.posonlyargs:
        raise BadInput(f"rewards: {node.name} is called by names, and its / forbids them", where, f"write: {FORM}")
    if TAKES not in names_of(node) and node.args.kwarg is None:
        raise BadInput(f"rewards: {node.name} does not take {TAKES}", where, f"write: {FORM}")


def names_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]


def file_of(text: str) -> str:
    """The file that is named, as it is written there; empty where all are Motley's own."""
    return next((kind for kind in map(kind_of, entries(text)) if kind.endswith(".py")), "")


def with_file(text: str, file: str) -> str:
    """The same rewards, where their file lies elsewhere."""
    kinds = [(entry, kind_of(entry)) for entry in entries(text)]
    return ",".join(entry.replace(kind, file, 1) if kind.endswith(".py") else entry for entry, kind in kinds)


def with_rows(settings: Settings, folder: str) -> Settings:
    """The settings of a node that has its rows there; a recipe and rewards of one's own come with them."""
    moved: Settings = {"dataset": folder}
    if own_recipe.is_file(settings.get("recipe", "")):
        moved["recipe"] = f"{folder}/recipe.py"
    if file_of(settings.get("rewards", "")):
        moved["rewards"] = with_file(settings["rewards"], f"{folder}/rewards.py")
    return {**settings, **moved}


def kind_of(entry: str) -> str:
    return WEIGHT.sub("", entry, count=1).strip().partition(":")[0]


def rewards_hash(rewards: Sequence[Reward]) -> str:
    """What scores the answers: the rewards with their weights, and what their file says now, wherever it lies."""
    digest = hashlib.sha256()
    for reward in rewards:
        argument = "" if reward.kind == FILE else reward.argument
        digest.update(f"{reward.weight!r}@{reward.kind}:{argument}:{reward.function}\n".encode())
    for file in sorted({reward.argument for reward in rewards if reward.kind == FILE}):
        digest.update(Path(file).read_bytes())
    return digest.hexdigest()


def require_columns(rewards: Sequence[Reward], columns: Mapping[str, object] | Sequence[str], data: str) -> None:
    """What is known of the columns before anything runs: those that Motley's own rewards compare with."""
    needs = [reward.name for reward in rewards if reward.kind in NEED_AN_ANSWER]
    if needs and ANSWER not in columns:
        what = f"rewards: {needs[0]} compares with the column {ANSWER}, which the data does not have"
        fix = f"name that column {ANSWER}, or leave {needs[0]} out"
        raise BadInput(what, f"{data} has: {', '.join(columns) or 'none'}", fix)
