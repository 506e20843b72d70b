"""Every command that a page shows is one that exists: targets, variables, options, files. What is quick and changes
nothing is run, and says what the page says that it says."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from console import launch_request
from console.command_line import make_variables
from console.command_line.shared_options import PHASES
from console.command_line.verbs import VERBS, parser
from console.launch_commands import launch_words
from lab import __main__ as lab
from tests.support import ROOT, pace
from tests.support.pages import COMMANDS, OPEN, PAGES, Command, of
from train import __main__ as train
from train.plan.settings.read_settings import SETTINGS, names_of, recipe_of

YOURS = "inventory/homelab/hosts.yml"
FOLDERS = "console docs inventory lab playbooks plugins requirements roles templates tests train"


def test_the_pages_have_commands() -> None:
    assert len(of("make", "./motley")) > 80 and len(of("./motley")) > 20
    assert len(of("python", "torchrun")) > 15 and len(of("ansible-playbook")) > 4
    pages = {"README.md", "getting-started.md", "machines.md", "training.md", "results.md", "questions.md"}
    pages |= {"reference.md", "trouble.md", "lab.md"}
    assert pages <= {command.page for command in COMMANDS}


@cache
def dry_run(*words: str) -> str:
    return pace.does("make", "-n", "-B", *words, cwd=ROOT).stdout.replace("\\\n", " ")


def target_of(command: Command) -> str:
    """Empty where a placeholder stands for it."""
    words = [word for word in command.words[1:] if not word.startswith("-") and "=" not in word]
    return words[0] if words and re.fullmatch(r"[a-z-]+", words[0]) else ""


@pytest.mark.parametrize("command", [*filter(target_of, of("make"))], ids=str)
def test_make_knows_target_and_variables(command: Command) -> None:
    target = target_of(command)
    given = dict(word.split("=", 1) for word in command.words[1:] if "=" in word and not word.startswith("-"))
    why = make_variables.refused([target], list(given))
    assert not why, why
    if target in VERBS:
        check_verb([target, *make_variables.options(target, given)], whole="…" not in command.text)
        return
    for line in dry_run(target, *(f"{name}={value}" for name, value in given.items())).splitlines():
        check_line(line, whole="…" not in command.text)


@pytest.mark.parametrize("command", of("./motley"), ids=str)
def test_motley_knows_its_options(command: Command) -> None:
    if command.words[1] not in ("help", "completion", "version", "--version"):
        check_verb(command.words[1:], whole=command.whole and "…" not in command.text)


@pytest.mark.parametrize("command", of("python", "torchrun", "ansible-playbook"), ids=str)
def test_programs_know_their_options(command: Command) -> None:
    whole = command.whole and "…" not in command.text
    assert check_line(" ".join(map(shlex.quote, command.words)), whole=whole), "nothing in it was recognised"


THEIRS = "train.py"
"""A guide's own script, which a page shows beside ours."""
OF_A_NODE = ("--config", "config/training_config.yaml")
"""What a launch has left there."""


def check_line(line: str, *, whole: bool) -> bool:
    """Whether there was something to check in it; fails where a parser would."""
    words = shlex.split(line.removeprefix("@"))
    names = [Path(word).name for word in words]
    if "ansible-playbook" in names:
        check_playbook(words[names.index("ansible-playbook") + 1 :], whole=whole)
        return True
    if "-m" not in words:
        return THEIRS in words
    module, *rest = words[words.index("-m") + 1 :]
    if module in ("train", "console", "lab") and rest:
        PARSED[module](rest, whole)
        return True
    place = ROOT / module.replace(".", "/")
    return place.with_suffix(".py").exists() or place.is_dir()


def check_train(words: list[str], whole: bool) -> None:
    verb, *rest = (word for word in words if word not in OF_A_NODE)
    try:
        _, parser = train.prepare_command(verb)
    except ModuleNotFoundError:  # it needs numpy, which the controller has not: its source names its options
        text = (ROOT / train.COMMANDS[verb][0].replace(".", "/")).with_suffix(".py").read_text()
        known = {f"--{name.replace('_', '-')}" for name in re.findall(r"\w+", text)} | {"--json", "--config"}
        assert {word for word in rest if word.startswith("--")} <= known
        return
    if whole:
        train.parse(parser, [concrete(word) for word in rest])
    else:
        check_flags(parser, rest)


def check_verb(words: list[str], whole: bool) -> None:
    verb, *rest = words
    assert verb in VERBS, f"there is no {verb}"
    if not whole:
        check_flags(parser(verb), rest)
        return
    args = parser(verb).parse_args([concrete(word) for word in rest])
    phase = getattr(args, "phase", "")
    assert phase in (*PHASES, "all", "", "PHASE"), f"there is no phase {phase}"
    assert (ROOT / getattr(args, "inventory", "inventory")).exists()
    if hasattr(args, "settings") and hasattr(args, "verbose"):
        given = {name: value for name, value in vars(args).items() if name not in ("inventory", "as_json", "follow")}
        check_extra(launch_words(**given))


def check_lab(words: list[str], whole: bool) -> None:
    if whole:
        lab.parser().parse_args([concrete(word) for word in words])
    elif not OPEN.search(words[0]):
        check_flags(verb_of(lab.parser(), words[0]), words[1:])


PARSED = {"train": check_train, "console": check_verb, "lab": check_lab}


def verb_of(parser: argparse.ArgumentParser, verb: str) -> argparse.ArgumentParser:
    (verbs,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    assert verb in verbs.choices, f"there is no {verb}"
    return verbs.choices[verb]


def check_flags(parser: argparse.ArgumentParser, words: list[str]) -> None:
    known = {option for action in parser._actions for option in action.option_strings}
    given = itertools.takewhile(lambda word: word != "--", words)
    assert {word.partition("=")[0] for word in given if word.startswith("--")} <= known


def concrete(word: str) -> str:
    """A place holder for a number is one."""
    return "1" if word in ("N", "STEP") else word


def check_playbook(words: list[str], *, whole: bool) -> None:
    files = [word for word in words if word.endswith((".yml", ".yaml")) and not word.startswith("@")]
    assert (files or not whole) and all((ROOT / file).exists() for file in files), files
    inventory = words[words.index("-i") + 1] if "-i" in words else "inventory/homelab"
    assert (ROOT / inventory).exists(), inventory
    check_extra(words)


def check_extra(words: list[str]) -> None:
    values = [after for word, after in itertools.pairwise(words) if word == "-e"]
    given = dict(value.split("=", 1) for value in values if "=" in value and not value.startswith(("@", "{")))
    known = set(SETTINGS) | set(launch_request.LAUNCH_ONLY) | names_of(recipe_of(given))
    for name in given:
        if not name.startswith("motley_") and not OPEN.fullmatch(name):
            assert name in known, f"launch.yml knows no variable {name}"
    assert not launch_request.unknown_inner(given)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_files_exist(page: Path) -> None:
    text = page.read_text()
    linked = [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    missing = [target for target in linked if not leads_somewhere(page, *target.partition("#")[::2])]
    below = "|".join(FOLDERS.split())
    named = re.findall(rf"`(?:\./)?((?:{below})/[\w./*-]*\w)(?:::\w*…?)?`", text)
    missing += [name for name in named if not any(ROOT.glob(name)) and not OPEN.search(name) and name != YOURS]
    tests = set(re.findall(r"\b(test_\w+\.py)\b", text))
    missing += sorted(name for name in tests if not any((ROOT / "tests").rglob(name)) and not OPEN.search(name))
    assert not missing, missing


def leads_somewhere(page: Path, file: str, heading: str) -> bool:
    there = page.parent / file if file else page
    if not heading:
        return there.exists()
    headings = re.findall(r"(?m)^#+ (.*)", there.read_text())
    return heading in {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


def quick() -> list[Command]:
    """What a page shows with its answer."""
    return [command for command in of("./motley") if command.output and {"plan", "--cards"} <= {*command.words}]


@pytest.mark.parametrize("command", quick(), ids=str)
def test_what_is_shown_is_what_comes(command: Command) -> None:
    words = [sys.executable, "-m", "console", *command.words[1:]]
    done = pace.does(*words, cwd=ROOT)
    came = {" ".join(line.split()) for line in done.stdout.splitlines()}
    for line in command.output:
        shown = " ".join(line.split())
        assert not shown or shown in came, f"the page shows\n  {shown}\nbut it says\n{done.stdout}"


@pytest.mark.parametrize(
    "words", [["make", "help"], ["make", "check", "INVENTORY=inventory/loopback"], ["./motley", "help"]], ids=" ".join
)
def test_what_needs_no_cluster_runs(words: list[str]) -> None:
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    pace.does(*words, cwd=ROOT, env=quiet)


def test_help_names_every_target() -> None:
    of_verbs, of_others = (
        subprocess.run(["make", word], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for word in ("help", "help-dev")
    )
    targets = re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text())
    assert {*re.findall(r"(?m)^  make ([a-z-]+)", of_others)} == {*targets} - {"known"}
    assert all(re.search(rf"(?m)^.{{9}}(.* · )?{verb}( |$)", of_verbs) for verb in VERBS)
    (verbs,) = re.findall(r"(?m)^VERBS := ((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text())
    assert sorted(verbs.replace("\\", "").split()) == sorted(VERBS)
