"""The commands that the pages show: from blocks that are indented, and from spans within the text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
OURS = [
    *("make", "./motley", "pytest", "python", ".venv/bin/python", "env/bin/python", "torchrun", "env/bin/torchrun"),
    *("ansible-playbook", ".venv/bin/ansible-playbook"),
]
# Words that stand for something of the reader's own.
OPEN = re.compile(r"…|(?<![A-Za-z])[A-Z][A-Z_]+(?![A-Za-z])")


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
    return [command for command in COMMANDS if {command.words[0], Path(command.words[0]).name} & {*programs}]
