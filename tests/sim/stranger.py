"""A stranger on the network who knows everything but the token: hears each line that passes, reaches each agent, and
says to it what was said before, by whom- and to whomever; the same with something changed; and what is signed with
another token. What an agent answers, the stranger hears too.

Who stands in the middle of a link can also cut it: that is a fault of its own (faults.py)."""

from __future__ import annotations

import hmac
import json
from random import Random
from typing import Any

from tests.sim.played import Machine, Play

MOST_S = 0.4
"""Between two words to somebody."""
KEPT = 400


class Stranger:
    def __init__(self, play: Play, seed: int) -> None:
        self.play, self.dice = play, Random(f"stranger {seed}")  # the story's own dice fall as they would without
        self.lines: list[bytes] = []
        self.said = 0
        play.heard = self.hears
        play.after(MOST_S, self.speaks)

    def hears(self, line: bytes) -> None:
        """Some of all lines, of the oldest too."""
        if len(self.lines) < KEPT:
            self.lines.append(line)
        else:
            self.lines[self.dice.randrange(KEPT)] = line

    def speaks(self) -> None:
        self.play.after(MOST_S * self.dice.random(), self.speaks)
        machine = self.dice.choice(list(self.play.machines.values()))
        life = machine.life
        if self.lines and life and not life.is_over and not life.is_held and machine.is_awake:
            for answer in list(life.answers.values()):
                self.said += 1
                answer(Told(self, machine, self.word()))

    def word(self) -> bytes:
        line = self.dice.choice(self.lines)
        kind = self.dice.choice(("again", "changed", "signed", "cut off"))
        mac, _, text = line.partition(b" ")
        if kind == "again":
            return line
        if kind == "cut off":
            return line[: self.dice.randrange(len(line))]
        facts: dict[str, Any] = json.loads(text)
        facts["beat"] += 10**6
        facts["status"] |= {"epoch": 10**6, "step": 10**6} if self.dice.random() < 0.5 else {
            "verdict": {"done": True, "reason": "says a stranger"}
        }  # fmt: skip
        text = json.dumps(facts).encode()
        if kind == "signed":
            mac = hmac.digest(b"guessed", text, "sha256").hex().encode()
        return mac + b" " + text + b"\n"


class Told:
    """A connection from the stranger, on the side of who answers."""

    def __init__(self, stranger: Stranger, machine: Machine, line: bytes) -> None:
        self.stranger, self.machine, self.read = stranger, machine, line

    def line(self, _: float) -> bytes:
        return self.read

    def send(self, line: bytes, _: float) -> None:
        self.stranger.hears(line)
