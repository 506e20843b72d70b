"""A console command that goes on while a test does other things, and what it has said so far."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time

from tests.support import pace
from tests.support.bootstrap import Person
from tests.support.cluster import REPOSITORY


class Watching:
    """Its lines go to a file: without a terminal it says one for each thing that happens."""

    def __init__(self, person: Person, *words: str) -> None:
        place = person.cluster.lab.place
        self._start(person, ["ip", "netns", "exec", place.controller, *person.command(*words)])

    @classmethod
    def program(cls, person: Person, command: list[str]) -> Watching:
        """Another program, the same way."""
        watching = cls.__new__(cls)
        watching._start(person, command)
        return watching

    def _start(self, person: Person, command: list[str]) -> None:
        self.place = 0
        self.file = person.folder / f"said-{time.monotonic_ns()}"
        with self.file.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env=os.environ | person.environment() | {"MOTLEY_LAB": person.cluster.lab.place.name},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def hears(self, pattern: str, within_s: float) -> re.Match[str]:
        """The next line with it, after what was heard before."""

        def heard() -> re.Match[str] | None:
            over = self.process.poll() is not None
            found = re.compile(pattern).search(self.said, self.place)
            assert found or not over, f"it ended without '{pattern}':\n{self.said[-4000:]}"
            return found

        found = pace.until(heard, within_s, lambda: f"'{pattern}' was not said:\n{self.said[-4000:]}", every_s=0.2)
        assert found
        self.place = found.end()
        return found

    def ends(self, within_s: float = pace.HANG_S) -> int:
        return pace.ended(self.process, within_s, lambda: f"it does not end:\n{self.said[-4000:]}")

    @property
    def said(self) -> str:
        return self.file.read_text(errors="replace")

    def kill(self) -> None:
        """As a power cut of the controller does: it says goodbye to nobody."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
