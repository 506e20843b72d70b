"""`python -m train serve`, played: a machine that answers in words which follow from the request, at a given speed.

It stands as env/bin/python in a node's home and reads played.json there: the `seconds` of a token, and an answer beside
it takes as long again; `cannot` or `unknown`: it does not serve. Each order is written down in orders.txt.
"""

from __future__ import annotations

import hashlib
import json
import queue
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RUN = "notes"
SLOTS = 8


def word(asked: Mapping[str, Any], place: int) -> str:
    about = json.dumps([asked.get("messages"), asked.get("prompt"), asked["seed"], place])
    return hashlib.sha256(about.encode()).hexdigest()[:6] + " "


def whole(asked: Mapping[str, Any], most: int) -> str:
    """The answer that every machine gives."""
    return "".join(word(asked, place) for place in range(most))


def install(home: Path, seconds: float = 0.01, **more: Any) -> None:
    """A node that has the run, as a launch leaves one."""
    logs = home / "logs/runs" / RUN
    logs.mkdir(parents=True)
    events = [{"event": "start", "time": 1, "total_steps": 9}, {"event": "step", "time": 2, "step": 9, "loss": 1}]
    (logs / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    (home / "results" / RUN / "adapter").mkdir(parents=True)
    (home / "env/bin").mkdir(parents=True)
    python = home / "env/bin/python"
    python.write_text(f'#!/bin/sh\necho $$ > pid\nexec {sys.executable} {Path(__file__).resolve()} "$@"\n')
    python.chmod(0o755)
    (home / "played.json").write_text(json.dumps({"seconds": seconds} | more))


def orders(home: Path) -> list[dict[str, Any]]:
    """What it was asked and what was taken back, so far."""
    file = home / "orders.txt"
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []


class Played:
    def __init__(self) -> None:
        self.how = json.loads(Path("played.json").read_text())
        self.orders: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.live: dict[int, dict[str, Any]] = {}

    def main(self) -> int:
        if unknown := self.how.get("unknown"):
            print(unknown, file=sys.stderr)
            return 2
        if cannot := self.how.get("cannot"):
            say(cannot=cannot)
            return 1
        print("a greeting of the shell, which is no line of ours", flush=True)
        for each in (self.read, self.well):
            threading.Thread(target=each, daemon=True).start()
        say(ready="play", slots=self.how.get("slots", SLOTS), context=100, seconds=self.how["seconds"])
        while True:
            while not self.live or not self.orders.empty():
                if (order := self.orders.get()) is None:
                    return 0
                self.take(order)
            time.sleep(self.how["seconds"] * len(self.live))
            self.step()

    def read(self) -> None:
        for line in sys.stdin:
            self.orders.put(json.loads(line))
        self.orders.put(None)

    def well(self) -> None:
        while True:
            say(well=True)
            time.sleep(0.2)

    def take(self, order: dict[str, Any]) -> None:
        with Path("orders.txt").open("a") as file:
            file.write(json.dumps(order) + "\n")
        if "drop" in order:
            self.live.pop(order["drop"], None)
        elif "too long" in str(order.get("prompt")):
            say(to=order["ask"], wrong="the request is too long")
        elif "breaks" in str(order.get("prompt")):
            raise SystemExit(3)
        elif "fails" in str(order.get("prompt")) and self.how.get("fails"):
            say(to=order["ask"], failed="out of memory")
        else:
            self.live[order["ask"]] = order

    def step(self) -> None:
        for number, order in list(self.live.items()):
            place = len(order["begun"])
            if place >= (order["most"] or 20):
                say(to=number, end="length", asked=3)
                del self.live[number]
                continue
            order["begun"].append(place)
            text = whole(order, place + 1)[order["sent"] :]
            order["sent"] += len(text)
            say(to=number, tokens=[place], text=text)


LOCK = threading.Lock()


def say(**line: object) -> None:
    with LOCK:
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(Played().main())
