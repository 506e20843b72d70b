"""What was read of the nodes, and what is made of it: plain data between collecting, judging and showing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Facts = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeReadings:
    """One node as it was found; None where it could not be looked at."""

    name: str
    address: str
    managed: bool = True
    """False: a folder on this machine (inventory/loopback)."""
    expected: Facts = field(default_factory=dict)
    """What the inventory says: subnet, disk_gb, skew_s, firewall, gpu_driver."""
    contact: Facts = field(default_factory=dict)
    """What plugins/action/first_contact.py says, and `knock`: nobody, silent, refused, closed, greets."""
    unreachable: str = ""
    """Why SSH did not get in although somebody answers."""
    sudo: str | None = ""
    """Empty: works. A message: why not. None: no password was given."""
    look_failed: str = ""
    look: Facts | None = None
    links: Facts | None = None
    link_failed: str = ""
    versions: Facts | None = None
    driver_fault: str = ""
    """"WHAT\nfix: FIX" of plugins/modules/gpu_info.py."""
    collective: Facts | None = None
    collective_failed: str = ""
    took: Mapping[str, float] = field(default_factory=dict)
    """Seconds per reading, those of `look` not among them."""

    def part(self, name: str) -> Any:
        return (self.look or {}).get(name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Readings:
    nodes: list[NodeReadings]
    load: bool = True
    """False: what would load the machines was skipped on request."""
    full: bool = False
    """True: every file of environment, models and data was to be read."""
    no_collective: str = ""
    """Why no all-reduce was tried."""

    @property
    def looked_at(self) -> list[NodeReadings]:
        return [node for node in self.nodes if node.look is not None]

    @property
    def runs_on(self) -> dict[str, str]:
        """Node → the name of the run that is running there."""
        return {n.name: str(n.part("runs")["run"]) for n in self.looked_at if (n.part("runs") or {}).get("on")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    probe: str = ""
    """Empty until it is judged: of the probe that found it."""
    node: str
    """Empty: about no node in particular."""
    what: str
    fix: str
    phase: str = ""
    """The phase of bootstrap that fixes it."""
    safe: bool = False
    """Whether --fix does it."""
    note: bool = False
    """Worth knowing, and nothing wrong: does not count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    name: str
    seen: str
    seconds: float
    skipped: bool = False
    known: list[str] = field(default_factory=list)
    """Nodes where something is wrong of which an earlier probe has reported the cause."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    nodes: list[str]
    probes: list[Probe]
    findings: list[Finding]

    @property
    def wrong(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.note]

    @property
    def ok(self) -> bool:
        return bool(self.nodes) and not self.wrong
