"""From readings of all nodes to findings: one sentence of cause and one command that fixes it. Pure.

Each probe takes the readings and returns what was seen and what is wrong. Where an earlier finding has
already named a phase of bootstrap on a node, a later one of that phase is the same cause seen twice: it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from console.doctor import access, gpus, links, machine, motley_itself, network
from console.doctor.probe_helpers import Found, Skipped
from console.doctor.readings_and_findings import Finding, Probe, Readings, Verdict


def judge(readings: Readings) -> Verdict:
    probes: list[Probe] = []
    findings: list[Finding] = []
    for name, (look, timed) in PROBES.items():
        seconds = _seconds(readings, timed)
        try:
            seen, found = look(readings)
        except Skipped as why:
            probes.append(Probe(name=name, seen=str(why), seconds=seconds, skipped=True))
            continue
        wrong = [replace(finding, probe=finding.probe or name) for finding in found]
        reported = {(finding.node, finding.phase) for finding in findings if finding.phase}
        new = [finding for finding in wrong if (finding.node, finding.phase) not in reported]
        known = [finding.node for finding in wrong if finding not in new]
        findings += new
        probes.append(Probe(name=name, seen=seen, seconds=seconds, known=known))
    return Verdict(nodes=[node.name for node in readings.nodes], probes=probes, findings=findings)


def _seconds(readings: Readings, timed: tuple[str, ...]) -> float:
    """The slowest node's: they are looked at together."""
    took = [{**node.took, **(node.part("took") or {})} for node in readings.nodes]
    return max((sum(float(seconds.get(part, 0)) for part in timed) for seconds in took), default=0.0)


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
    "versions": (motley_itself.software, ("versions",)),
    "phases": (motley_itself.phases, ("phases", "units")),
    "runs": (motley_itself.runs, ("runs",)),
    "all-reduce": (motley_itself.collective, ("collective",)),
}
