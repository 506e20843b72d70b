"""A healthy trio with one thing wrong on its node `left`, and what the doctor finds then."""

from __future__ import annotations

import copy
from collections.abc import Callable

from console.doctor.judge import judge
from console.doctor.readings_and_findings import Finding, Readings
from tests.support.readings import CARD, healthy, lan_card, with_node, with_part

Spoil = Callable[[Readings], Readings]
LEFT = [("head", "left"), ("left", "right")]
"""Every pair that the node `left` is in."""


def wrong(readings: Readings) -> list[tuple[str, str]]:
    return [(finding.probe, finding.node) for finding in judge(readings).wrong]


def only(readings: Readings) -> Finding:
    (finding,) = judge(readings).wrong
    return finding


def part(name: str, **other: object) -> Spoil:
    return lambda readings: with_part(readings, "left", name, **other)


def node(**other: object) -> Spoil:
    return lambda readings: with_node(readings, "left", **other)


def contact(**other: object) -> Spoil:
    return node(contact={"tried": ["10.0.0.2"], **other}, look=None, links=None, versions=None, sudo=None)


def card(**other: str) -> Spoil:
    return part("gpu", shown=[CARD | other])


def links(*more: dict[str, object], **other: object) -> Spoil:
    return part("network", links=[lan_card("10.0.0.2", **other), *more])


def disk(place: str, **other: object) -> Readings:
    seen = copy.deepcopy(next(n for n in healthy().nodes if n.name == "left").look or {})["disk"]
    return with_part(healthy(), "left", "disk", **{place: seen[place] | other})
