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
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import pytest

from console import __main__ as console
from console import launch_request
from lab import __main__ as lab
from train import __main__ as train
from train.plan.config import RunConfig

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
OURS = (
    "make",
    "python",
    ".venv/bin/python",
    "env/bin/python",
    "ansible-playbook",
    ".venv/bin/ansible-playbook",
    "torchrun",
    "pytest",
)
# Words that stand for something of the reader's own.
OPEN = re.compile(r"…|(?<![A-Za-z])[A-Z][A-Z_]+(?![A-Za-z])")
FOLDERS = "console docs inventory lab playbooks plugins requirements roles templates tests train"


@dataclass(frozen=True)
class Command:
    page: str
    line: int
    text: str
    output: tuple[str, ...] = ()
    whole: bool = True
    """Of a block: to be typed as it stands. Within the text a command may be named without all that it wants."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line} {self.text}"

    @property
    def words(self) -> list[str]:
        """Without sudo, without what it sets in the environment, with a word for what is left open."""
        words = shlex.split(self.text.replace("…/", "").replace(" …", ""))
        words = words[1:] if words[:1] == ["sudo"] else words
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        return words


def commands_of(page: Path) -> Iterator[Command]:
    """From blocks that are indented or fenced, and from spans within the text."""
    lines = page.read_text().splitlines()
    for number, line in enumerate(lines):
        if re.match(r"(    |\t)", line):
            text = line.strip()
            while text.endswith("\\"):
                number += 1  # noqa: PLW2901  a command over several lines
                text = text[:-1] + lines[number].strip()
            asked_for = text.startswith("$ ")
            text = re.sub(r"\s+#( .*|$)", "", text.removeprefix("$ "))
            said = [] if not asked_for else [later.strip() for later in told_after(lines, number + 1)]
            for part in text.split(" && "):
                yield Command(page.name, number + 1, part.strip(), tuple(said))
        for span in re.findall(r"`([^`]+)`", line):
            yield Command(page.name, number + 1, span.split(" && ")[0], whole=False)


def told_after(lines: list[str], start: int) -> Iterator[str]:
    for line in lines[start:]:
        if line.startswith("    $") or not (line.startswith("    ") or not line.strip()):
            return
        yield line


def is_ours(command: Command) -> bool:
    try:
        words = command.words
    except ValueError:
        return False
    return len(words) > 1 and words[0] in OURS


COMMANDS = [command for page in PAGES for command in commands_of(page) if is_ours(command)]


def of(*programs: str) -> list[Command]:
    return [command for command in COMMANDS if Path(command.words[0]).name in programs]


def test_the_pages_have_commands() -> None:
    assert len(of("make")) > 60 and len(of("python", "torchrun")) > 15 and len(of("ansible-playbook")) > 4
    pages = {"README.md", "getting-started.md", "machines.md", "training.md", "reference.md", "trouble.md", "lab.md"}
    assert pages <= {command.page for command in COMMANDS}


@cache
def dry_run(*words: str) -> str:
    done = subprocess.run(["make", "-n", "-B", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace("\\\n", " ")


@cache
def read_from_the_environment() -> frozenset[str]:
    sources = [*(ROOT / "console").rglob("*.py"), *(ROOT / "roles").rglob("*.yml")]
    asked_for = r"""(?:environ(?:\.get\(|\.pop\(|\[)|env', )["']([A-Z_]+)["']"""
    found = re.findall(asked_for, "".join(file.read_text() for file in sources))
    return frozenset(found)


def target_of(command: Command) -> str:
    """Empty where a placeholder stands for it."""
    words = [word for word in command.words[1:] if not word.startswith("-") and "=" not in word]
    return words[0] if words and re.fullmatch(r"[a-z-]+", words[0]) else ""


@pytest.mark.parametrize("command", [*filter(target_of, of("make"))], ids=str)
def test_make_knows_target_and_variables(command: Command) -> None:
    target = target_of(command)
    given = [word for word in command.words[1:] if "=" in word and not word.startswith("-")]
    whole = dry_run(target, *given)
    for word in given:
        name = word.partition("=")[0]
        others = [other for other in given if other != word]
        used = dry_run(target, *others) != whole or name in read_from_the_environment()
        assert used or name == "INVENTORY", f"make {target} does nothing with {name}"
    for line in whole.splitlines():
        check_line(line, whole="…" not in command.text)


@pytest.mark.parametrize("command", of("python", "torchrun", "ansible-playbook"), ids=str)
def test_programs_know_their_options(command: Command) -> None:
    whole = command.whole and "…" not in command.text
    assert check_line(" ".join(map(shlex.quote, command.words)), whole=whole), "nothing in it was recognised"


def check_line(line: str, *, whole: bool) -> bool:
    """Whether there was something to check in it; fails where a parser would."""
    words = shlex.split(line.removeprefix("@"))
    names = [Path(word).name for word in words]
    if "ansible-playbook" in names:
        check_playbook(words[names.index("ansible-playbook") + 1 :], whole=whole)
        return True
    if "-m" not in words:
        return False
    module, *rest = words[words.index("-m") + 1 :]
    if module in ("train", "console", "lab") and rest:
        PARSED[module](rest, whole)
        return True
    return (ROOT / module.replace(".", "/")).with_suffix(".py").exists() or (ROOT / module).is_dir()


def check_train(words: list[str], whole: bool) -> None:
    verb, *rest = words
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


def check_console(words: list[str], whole: bool) -> None:
    if not whole:
        check_flags(verb_of(console.parser(), words[0]), words[1:])
        return
    args, more = console.parser().parse_known_args([concrete(word) for word in words])
    assert not more or hasattr(args, "words"), more
    phase = getattr(args, "phase", "")
    assert phase in (*console.PHASES, "all", "", "PHASE"), f"there is no phase {phase}"
    assert (ROOT / getattr(args, "inventory", "inventory")).exists()
    check_extra(more)


def check_lab(words: list[str], whole: bool) -> None:
    if whole:
        lab.parser().parse_args([concrete(word) for word in words])
    elif not OPEN.search(words[0]):
        check_flags(verb_of(lab.parser(), words[0]), words[1:])


PARSED = {"train": check_train, "console": check_console, "lab": check_lab}


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
    known = {setting.name for setting in fields(RunConfig)} | set(launch_request.LAUNCH_ONLY)
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
    missing += [name for name in named if not any(ROOT.glob(name)) and not OPEN.search(name)]
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
    return [command for command in of("python", "make") if command.output and " -m train plan" in command.text]


@pytest.mark.parametrize("command", quick(), ids=str)
def test_what_is_shown_is_what_comes(command: Command) -> None:
    done = subprocess.run([sys.executable, *command.words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    came = {" ".join(line.split()) for line in done.stdout.splitlines()}
    for line in command.output:
        shown = " ".join(line.split())
        assert not shown or shown in came, f"the page shows\n  {shown}\nbut it says\n{done.stdout}"


@pytest.mark.parametrize("words", [["make", "help"], ["make", "check", "INVENTORY=inventory/loopback"]], ids=" ".join)
def test_what_needs_no_cluster_runs(words: list[str]) -> None:
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, env=quiet)
    assert done.returncode == 0, done.stdout + done.stderr


def test_help_names_every_target() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text())
    assert sorted(re.findall(r"make ([a-z-]+)", shown)) == sorted({*targets} - {"embedded"})
