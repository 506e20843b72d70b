"""The verdict for a person: one calm line a probe, then every finding with its cause and the command that fixes it."""

from __future__ import annotations

from dataclasses import asdict, replace

from console.doctor.readings_and_findings import Finding, Verdict
from console.text_layout import counted


def lines(verdict: Verdict, seconds: float) -> list[str]:
    bad: dict[str, list[str]] = {}
    for finding in verdict.wrong:
        bad.setdefault(OF.get(finding.probe, finding.probe), []).append(finding.node or "the cluster")
    width = max((len(probe.name) for probe in verdict.probes), default=0)
    shown = []
    for probe in verdict.probes:
        names = list(dict.fromkeys([*bad.get(probe.name, []), *probe.known]))
        mark = "–" if probe.skipped else "✗" if names else "✓"
        seen = f"{', '.join(names)}: see below" if names else probe.seen
        took = f"{probe.seconds:5.1f} s" if probe.seconds else ""
        shown.append(f"  {mark} {probe.name:<{width}}  {took:>7}  {seen}".rstrip())
    notes = [finding for finding in verdict.findings if finding.note]
    for finding in [*together(verdict.wrong), *together(notes)]:
        shown += ["", *of_finding(finding)]
    return [*shown, "", last_line(verdict, seconds)]


# Findings under a name of their own, and the probe that finds them.
OF = {"reach": "ssh", "host key": "ssh", "loss": "round trip", "gpu throttled": "gpu", "gpu in use": "gpu"}


def together(findings: list[Finding]) -> list[Finding]:
    """What is the same on several nodes is reported once, with one command for all of them."""
    alike: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        fix = finding.fix.replace(finding.node, "{host}") if finding.node else finding.fix
        alike.setdefault((finding.probe, finding.what, fix), []).append(finding)
    return [
        replace(
            same[0], node=", ".join(f.node for f in same), fix=fix.replace("{host}", ",".join(f.node for f in same))
        )
        for (_, _, fix), same in alike.items()
    ]


def of_finding(finding: Finding) -> list[str]:
    mark = "·" if finding.note else "✗"
    return [
        f"{mark} {finding.node or 'the cluster'}  {finding.probe}: {finding.what}",
        f"    fix: {finding.fix}{'   (--fix does it)' if finding.safe else ''}",
    ]


def last_line(verdict: Verdict, seconds: float) -> str:
    done = sum(not probe.skipped for probe in verdict.probes)
    skipped = len(verdict.probes) - done
    skip_note = f", {skipped} skipped" if skipped else ""
    words = counted(len(verdict.wrong), "finding") if verdict.wrong else "healthy"
    return f"{counted(done, 'probe')} on {counted(len(verdict.nodes), 'node')}{skip_note} in {seconds:.0f} s · {words}"


def as_data(verdict: Verdict, seconds: float) -> dict[str, object]:
    return {"ok": verdict.ok, "seconds": round(seconds, 1), **asdict(verdict)}
