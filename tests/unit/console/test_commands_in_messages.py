"""A message that names a command of ours names one that can be typed."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from console.command_line.verbs import VERBS
from console.launch_request import LAUNCH_ONLY
from tests.support import ROOT
from train.plan.launch.plan_cards import ABOUT_MACHINES
from train.plan.settings.read_settings import SETTINGS

SOURCES = [
    file
    for folder in ("console", "inventory", "lab", "playbooks", "plugins", "roles", "templates", "train")
    for file in sorted((ROOT / folder).rglob("*"))
    if file.suffix in (".py", ".yml", ".j2", ".sh") and file.is_file()
]
COMMAND = re.compile(r"\./motley ([a-z][a-z-]*)((?: --[a-z-]+(?:[ =][^\s-][^\s;,()`\"']*)?)*)")
VARIABLES = {name for verb in VERBS.values() for option in verb.options for name in option.variables}
SETTING = re.compile(rf"(?<![\w${{-])({'|'.join(sorted(VARIABLES, key=len, reverse=True))})=[^\s\"'=]+")
SAID = {"help", "completion", "has", "itself", "says"}  # the last three: of ./motley itself
OF_MAKE = re.compile(rf"\bmake ({'|'.join(sorted(VERBS, key=len, reverse=True))})\b(?!-)")


OPTIONS = {flag for verb in VERBS.values() for option in verb.options for flag in option.flags} | {"--help", "--json"}
THEIRS = {"--partition", "--gpus", "--nodelist", "--begin", "--time", "--user", "--nproc-per-node", "--ask-vault-pass"}
"""Options of sbatch, systemctl, torchrun and Ansible, which messages name beside their program."""
OF_A_NODE = (
    *("train/__main__.py", "train/cluster/agent.py", "train/measure/", "train/results/", "train/models/fetch.py"),
    *("train/runlog/merge_traces.py", "train/recipes/images/recipe.py"),
)
"""What a person meets who types `python -m train …` on a node: its options are named there."""
SET = re.compile(r"--set ([a-z_]+)=")
BY_HAND = re.compile(r"(?<![\w-])-e [A-Za-z_]+=(?!.*ansible-playbook)")
BARE = re.compile(r"(?<![/\w-])ansible-(?:vault|playbook) [a-z]\S+")
REFUSALS = {"BadInput", "CheckFailed", "NowhereToAsk", "NothingHappened", "Finding"}


def wrong_words(text: str) -> list[str]:
    """What nobody can type: variables that no launch knows, what is Ansible's alone, programs of .venv without it."""
    known = {*SETTINGS, *LAUNCH_ONLY, *ABOUT_MACHINES}
    wrong = [f"--set {name}" for name in SET.findall(text) if name not in known and not name.startswith("motley_")]
    return wrong + [found[0] for rule in (BY_HAND, BARE) for found in rule.finditer(text)]


@cache
def read_tree(file: Path) -> ast.Module:
    return ast.parse(read(file))


def strings(tree: ast.AST) -> Iterator[str]:
    """The texts that are shown: no docstring; what stands in braces is an X."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        else:
            yield from strings(node)


def refusals(file: Path) -> Iterator[str]:
    for node in ast.walk(read_tree(file)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in REFUSALS:
            yield from strings(node)


def sentences(file: Path) -> Iterator[str]:
    if file.suffix == ".py":
        yield from strings(read_tree(file))
    else:
        yield from (line for line in read(file).splitlines() if not line.lstrip().startswith("#"))


def wrong_commands(text: str) -> list[str]:
    wrong = [found[0] for found in [*OF_MAKE.finditer(text), *SETTING.finditer(text)]]
    for verb, words in COMMAND.findall(text):
        flags = {flag for option in VERBS[verb].options for flag in option.flags} if verb in VERBS else set()
        flags |= {"--help"}
        wrong += [f"{verb} {flag}" for flag in re.findall(r"--[a-z-]+", words) if flag not in flags]
        wrong += [verb] if verb not in {*VERBS, *SAID} else []
    return wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("make stop", True),
        ("VAULT=ask", True),
        ("./motley stopp", True),
        ("./motley bootstrap --phase run --limt a", True),
        ("make room", False),
        ("make lab-down", False),
        ("./motley bootstrap --phase run --nodes a,b (again)", False),
    ],
)
def test_a_command_that_nobody_can_type_is_found(text: str, wrong: bool) -> None:
    assert bool(wrong_commands(f"fix: {text}, then again")) is wrong


def test_every_message_names_a_command_that_can_be_typed() -> None:
    found = {str(file.relative_to(ROOT)): wrong for file in SOURCES if (wrong := wrong_commands(read(file)))}
    assert not found, found


def read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("-e run=X", True),
        ("--set lr=1", True),
        ("--set eval_fractions=0.1", True),
        ("fix: ansible-vault encrypt_string", True),
        ("ansible-playbook a.yml", True),
        ("--set eval_fraction=0.1", False),
        ("--set motley_calm=1", False),
        (".venv/bin/ansible-vault view", False),
        ("locked by ansible-vault", False),
    ],
)
def test_words_that_only_ansible_knows_are_found(text: str, wrong: bool) -> None:
    assert bool(wrong_words(f"fix: {text}")) is wrong


def test_no_message_asks_for_a_variable_or_a_program_that_cannot_be_typed() -> None:
    shown = {file: " ".join(wrong_words("\n".join(sentences(file)))) for file in SOURCES if file.suffix != ".sh"}
    assert not {str(file.relative_to(ROOT)): wrong for file, wrong in shown.items() if wrong}


def test_every_option_in_a_refusal_is_one_of_a_verb() -> None:
    found = {}
    for file in SOURCES:
        name = str(file.relative_to(ROOT))
        if file.suffix == ".py" and not name.startswith(("lab/", *OF_A_NODE)):
            named = {flag for text in refusals(file) for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)}
            if unknown := named - OPTIONS - THEIRS:
                found[name] = unknown
    assert not found
