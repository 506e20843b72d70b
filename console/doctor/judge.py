"""From readings of all nodes to findings: one sentence of cause and one command that fixes it. Pure.

Each probe takes the readings and returns what was seen and what is wrong. Where an earlier finding has
already named a phase of bootstrap on a node, a later one of that phase is the same cause seen twice: it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable

from console.doctor import access, gpus, links, machine, network, own
from console.doctor.common import Found, Skipped
from console.doctor.readings import Finding, NodeReadings, Probe, Readings, Verdict


def judge(readings: Readings) -> Verdict:
    probes: list[Probe] = []
    findings: list[Finding] = []
    for name, (look, timed) in PROBES.items():
        seconds = _seconds(readings, timed)
        try:
            seen, wrong = look(readings)
        except Skipped as why:
            probes.append(Probe(name=name, seen=str(why), seconds=seconds, skipped=True))
            continue
        reported = {(finding.node, finding.phase) for finding in findings if finding.phase}
        new = [finding for finding in wrong if (finding.node, finding.phase) not in reported]
        known = [finding.node for finding in wrong if finding not in new]
        findings += new
        probes.append(Probe(name=name, seen=seen, seconds=seconds, known=known))
    return Verdict(nodes=[node.name for node in readings.nodes], probes=probes, findings=findings)


def _seconds(readings: Readings, timed: tuple[str, ...]) -> float:
    """The slowest node's: they are looked at together."""
    return max((_node_seconds(node, timed) for node in readings.nodes), default=0.0)


def _node_seconds(node: NodeReadings, timed: tuple[str, ...]) -> float:
    took = {**node.took, **(node.part("took") or {})}
    return sum(float(took.get(part, 0)) for part in timed)


PROBES: dict[str, tuple[Callable[[Readings], Found], tuple[str, ...]]] = {
    "ssh": (access.ssh, ("contact",)),
    "sudo": (access.sudo, ()),
    "names": (network.names, ("names",)),
    "network": (network.network, ("network",)),
    "firewall": (network.firewall, ("firewall",)),
    "ports": (links.ports, ("reach",)),
    "link": (network.link, ()),
    "round trip": (links.trips, ()),
    "throughput": (links.throughput, ("links",)),
    "packets": (links.packets, ()),
    "clock": (machine.clock, ("clock",)),
    "power": (machine.power, ("power",)),
    "disk": (machine.disk, ("disk", "disk_speed")),
    "processor": (machine.processor, ("processor",)),
    "apt": (machine.apt, ("apt",)),
    "gpu": (gpus.gpu, ("gpu",)),
    "driver": (gpus.driver, ("driver",)),
    "versions": (own.software, ("versions",)),
    "phases": (own.phases, ("phases", "units")),
    "runs": (own.runs, ("runs",)),
    "all-reduce": (own.collective, ("collective",)),
}
