"""Whether somebody plays, or works with the card: a program that draws and holds its memory, GameMode, or a program of
a list. Queries about computing alone do not show games, so the whole state of the cards is read.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from train.cluster.timing import TIMING
from train.game_on_card import running_game


class InUse:
    def __init__(
        self,
        programs: Collection[str],
        read: Callable[[Collection[str]], str] | None = None,
        *,
        every_s: float = TIMING.use_look_s,
    ) -> None:
        self.programs, self.read = programs, read or who_uses_it
        self.who, self.name = "", ""
        self.seen_since: float | None = None
        self.quiet_since: float | None = None
        self.held = False
        threading.Thread(target=self._read_for_ever, args=(every_s,), daemon=True).start()

    def _read_for_ever(self, every_s: float) -> None:
        """Reads who uses the machine, in a thread of its own: with a broken card nvidia-smi may never return."""
        while True:
            with contextlib.suppress(Exception):
                self.who = self.read(self.programs)
            time.sleep(every_s)

    def look(self, at: float) -> str:
        """Names who uses the machine, while that counts; empty otherwise."""
        who = self.who
        if who:
            self.name, self.quiet_since = who, None
            self.seen_since = at if self.seen_since is None else self.seen_since
            self.held = self.held or at - self.seen_since >= TIMING.use_begins_s
        else:
            self.seen_since = None
            self.quiet_since = at if self.quiet_since is None else self.quiet_since
            self.held = self.held and at - self.quiet_since < TIMING.use_ends_s
        return self.name if self.held else ""


def who_uses_it(programs: Collection[str]) -> str:
    return running_program(programs) or game_mode() or running_game()


def running_program(programs: Collection[str], proc: Path = Path("/proc")) -> str:
    """One of `programs` that runs, else empty; the kernel keeps the first 15 bytes of a name."""
    by_kept_name = {os.fsencode(name)[:15]: name for name in programs}
    for file in proc.glob("[0-9]*/comm") if by_kept_name else ():
        with contextlib.suppress(OSError):
            if program := by_kept_name.get(file.read_bytes().strip()):
                return program
    return ""


def game_mode() -> str:
    """Asks Feral's GameMode of this user's session, where there is one; empty where it is not active."""
    env = {"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}"} | os.environ
    try:
        answer = subprocess.run(
            ["gamemoded", "-s"], capture_output=True, text=True, timeout=5, env=env, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return "a game (GameMode)" if "is active" in answer else ""
