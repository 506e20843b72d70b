"""What Motley itself brought: versions, phases, runs, and computing together. Pure."""

from __future__ import annotations

from collections import Counter

from console.doctor.probe_helpers import SAFE_PHASES, Found, Skipped, bootstrap, listed, need, no_load
from console.doctor.readings_and_findings import Facts, Finding, Readings
from console.text_layout import counted
from train.plan.machines import odd_versions


def software(readings: Readings) -> Found:
    versions_of = {node.name: node.versions for node in readings.nodes if node.versions is not None}
    if not versions_of:
        raise Skipped("no node could be checked")
    verdict = odd_versions.judge(versions_of)
    broken = {node.name for node in readings.nodes if node.driver_fault or not node.expected.get("gpu_driver")}
    broken |= {node.name for node in readings.nodes if (node.part("gpu") or {}).get("switched_off")}
    wrong = []
    for odd in verdict.odd:
        if not odd.is_cause or (odd.key.startswith("driver") and odd.node in broken):
            continue
        drift = odd_versions.changed(odd.key, odd.value)
        what = f"{odd.words}: {drift}" if drift else odd.words
        wrong.append(
            Finding(node=odd.node, what=what, fix=odd.fix_on(), phase=odd.phase, safe=odd.phase in SAFE_PHASES)
        )
    compared = f"{counted(len(verdict.rows), 'row')} compared on {counted(len(versions_of), 'node')}"
    seen = f"{compared} (./motley check-versions shows them)"
    on = list(readings.runs_on.values())
    files = f"; files not read: run {on[0]} is running" if on else ", every file read"
    return seen + (files if readings.full else ""), wrong


TROUBLES = {
    "gone": "{path} is gone",
    "back": "{path} is as it was before Motley",
    "no block": "Motley's part of {path} was removed",
    "edited": "{path} was changed by hand",
}


def phases(readings: Readings) -> Found:
    wrong = []
    files, units = need(readings, "phases"), need(readings, "units")
    undone: dict[tuple[str, str], list[str]] = {}
    for node, changed in files:
        for entry in changed:
            words = TROUBLES[entry["trouble"]].format(path=entry["path"])
            undone.setdefault((node.name, entry["phase"]), []).append(words)
    for node, switched in units:
        for unit, state in switched.items():
            if state["enabled"] != "enabled" or state["active"] not in ("active", "activating"):
                words = f"{unit} is {state['enabled'] or 'unknown'} and {state['active'] or 'unknown'}"
                undone.setdefault((node.name, state["phase"]), []).append(words)
    for (name, phase), causes in undone.items():
        what = f"the phase {phase} was undone by hand: {'; '.join(causes[:2])}"
        fix = bootstrap(phase, name)
        wrong.append(Finding(node=name, what=what, fix=fix, phase=phase, safe=phase in SAFE_PHASES))
    standing = len(files) - len({finding.node for finding in wrong})
    return f"what bootstrap did is still in place on {standing} of {len(files)} nodes", wrong


def runs(readings: Readings) -> Found:
    wrong = []
    found = need(readings, "runs")
    on = readings.runs_on
    usual = Counter(on.values()).most_common(1)[0][0] if on else ""
    for node, facts in found:
        about: Facts = {"node": node.name}
        if facts["orphans"]:
            count = len(facts["orphans"])
            who = f"{count} processes of an older run are" if count > 1 else "a process of an older run is"
            what = f"{who} still there, without an agent"
            wrong.append(Finding(what=what, fix="./motley stop", safe=not on, **about))
        elif facts["on"] and facts["run"] != usual:
            what = f"run {facts['run']} runs there, run {usual} on the others"
            wrong.append(Finding(what=what, fix="./motley stop, then ./motley launch again", **about))
        elif aside := facts.get("aside"):
            what = f"it steps aside from run {facts['run']}: {aside['cause']}"
            wrong.append(Finding(what=what, fix=back_again(aside["rule"], node.name), note=True, **about))
        elif facts["wanted"] and not facts["on"]:
            unit = f"{facts['unit'] or 'unknown'}, {facts['result'] or '?'}"
            what = f"a run is requested there and none is running (its unit: {unit})"
            wrong.append(
                Finding(
                    what=what,
                    fix=f"./motley logs --nodes {node.name}; ./motley stop ends the request",
                    safe=not on,
                    **about,
                )
            )
    return f"run {usual} is running on {listed(list(on))}" if on else "no run is running", wrong


def back_again(rule: str, name: str) -> str:
    """What brings a machine that steps aside back into its run."""
    fixes = {
        "paused": f"./motley unpause --nodes {name}",
        "in use": "close that program; the machine is back after five quiet minutes",
        "on battery": "plug it in; or let it train on battery: motley_on_battery: train",
    }
    return fixes.get(rule, "it comes back automatically")


def collective(readings: Readings) -> Found:
    no_load(readings)
    if readings.no_collective:
        raise Skipped(readings.no_collective)
    failed = {node.name: node.collective_failed for node in readings.nodes if node.collective_failed}
    measured = next((node.collective for node in readings.nodes if node.collective), None)
    if failed:
        what, _, fix = next(iter(failed.values())).partition("\nfix: ")
        whole = f"{what} (on {listed(list(failed))})" if len(failed) > 1 else what
        return "failed", [Finding(node=next(iter(failed)), what=whole, fix=fix or "./motley check-versions")]
    if measured is None:
        raise Skipped("no node reported a result")
    pairs_s = list(measured.get("pairs", {}).values())
    two = f"; two and two {min(pairs_s) * 1000:.0f}–{max(pairs_s) * 1000:.0f} ms" if pairs_s else ""
    why = f", as {measured['why']}" if measured.get("why") else ""
    size = f"{measured['megabytes']:.0f} MB, {measured['backend']}{why}, {measured['world']} nodes"
    return f"{size}: {measured['seconds'] * 1000:.0f} ms{two}", []
