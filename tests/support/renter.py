"""Whoever rents in the lab: what is typed at its controller, its leases, and the market's own books."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from console import processes
from lab import base, rented
from lab.demo_rent import ON_LAB_HOSTS
from lab.lab import Lab
from lab.market import KEY
from tests.support import ROOT, cluster, pace
from tests.support.screen import Screen


def wish(hours: str) -> list[str]:
    return ["--gpu", "RTX 4090", "--hours", hours, "--max", "0.5", "--model", "tiny"]


@dataclass(frozen=True)
class Renter:
    """Whoever types, at the lab's controller."""

    lab: Lab
    folder: Path
    market: str

    @property
    def environment(self) -> dict[str, str]:
        known = {"MOTLEY_LAB": self.lab.place.name, "MOTLEY_MARKET": self.market, "MOTLEY_RENTED": str(self.state)}
        return os.environ | known | {"CLORE_API_KEY": KEY}

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def inventory(self) -> Path:
        return self.folder / "rented"

    def command(self, verb: str, *words: str | Path) -> list[str]:
        here = ["ip", "netns", "exec", self.lab.place.controller, sys.executable, "-m", "console"]
        return [*here, verb, *map(str, words)]

    def types(self, verb: str, *words: str | Path) -> CompletedProcess[str]:
        return pace.run(*self.command(verb, *words), cwd=ROOT, env=self.environment)

    def sits_at(self, verb: str, *words: str | Path) -> Screen:
        """The same on a terminal, for what asks back."""
        first, *others = self.command(verb, *words)
        return Screen(first, others, cwd=str(ROOT), env=self.environment | {"TERM": "dumb"}, encoding="utf-8")

    def rents(self, hours: str = "1", *more: str) -> CompletedProcess[str]:
        return self.types("rent", *wish(hours), "--yes", *more, "--inventory", self.inventory)

    def asks(self, name: str, **body: Any) -> dict[str, Any]:
        """The market itself, as no renter sees it."""
        ask = (
            "import sys,urllib.request as u;"
            f"r=u.Request('{self.market}/{name}',None if sys.argv[1]=='{{}}' else sys.argv[1].encode());"
            "print(u.urlopen(r,timeout=5).read().decode())"
        )
        known = ["ip", "netns", "exec", self.lab.place.controller, sys.executable, "-c", ask, json.dumps(body)]
        return dict(json.loads(pace.run(*known).stdout))

    @property
    def bill(self) -> list[dict[str, Any]]:
        return list(self.asks("bill")["orders"])

    def lease(self) -> dict[str, Any]:
        (file,) = self.state.glob("motley-*.json")
        return dict(json.loads(file.read_text()))


def market_of(
    tmp_path: Path, *layers: str, profile: str = rented.PROFILE, shape: str = rented.SHAPE
) -> Iterator[Renter]:
    with cluster.hosts(f"t{os.getpid()}", profile, base.default_suite(), layers, [shape]) as lab:
        shutil.copytree(ROOT / "inventory/rented", tmp_path / "rented")
        variables = tmp_path / "rented/group_vars/cluster.yml"
        variables.write_text(variables.read_text() + ON_LAB_HOSTS)
        try:
            yield Renter(lab, tmp_path, rented.open_market(lab))
        finally:
            processes.end(f"MOTLEY_RENTED={tmp_path / 'state'}")
