"""What a playbook answers to the command that started it: one value, which one of its tasks returns under a name.

The command opens a file and says which name it wants (`asked_for`). plugins/callback/calm.py writes the value into the
file (`give`), whichever task returns it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

WANTED = "MOTLEY_ANSWER"
"""The variable that has the open file's number and the name."""


@dataclass(frozen=True, slots=True)
class Answer:
    name: str
    file: IO[bytes]

    def inherited(self, **more: str) -> dict[str, Any]:
        """What subprocess needs, so that the playbook can answer."""
        number = self.file.fileno()
        return {"env": os.environ | more | {WANTED: f"{number} {self.name}"}, "pass_fds": [number]}

    def read(self) -> Any:
        """None where no task has returned it."""
        self.file.seek(0)
        return json.loads(self.file.read() or b"null")


@contextmanager
def asked_for(name: str) -> Iterator[Answer]:
    with tempfile.TemporaryFile() as file:
        yield Answer(name, file)


def wanted() -> str:
    """Inside Ansible: the name of what the command that started it wants to know; empty where nobody does."""
    return os.environ.get(WANTED, "").partition(" ")[2]


def give(result: Mapping[str, Any]) -> None:
    """The last task that returns it is the one that counts."""
    if (name := wanted()) and name in result:
        number = int(os.environ[WANTED].partition(" ")[0])
        os.truncate(number, 0)
        os.pwrite(number, json.dumps(result[name]).encode(), 0)
