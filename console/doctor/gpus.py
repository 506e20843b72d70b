"""GPUs and their driver. Pure."""

from __future__ import annotations

from console.doctor.probe_helpers import Found, Skipped, bootstrap, listed, need, number
from console.doctor.readings_and_findings import Finding, NodeReadings, Readings
from plugins.module_utils.motley.doctor_machine import Gpus
from plugins.module_utils.motley.driver_packages import switched_off_fault

BUSY_MEMORY, BUSY_PERCENT = 0.25, 50
HOT = "it is too hot"
THROTTLED = {0x8: "the hardware slows it down", 0x20: HOT, 0x40: HOT, 0x80: "its power is short"}


def driver(readings: Readings) -> Found:
    managed = [(node, facts) for node, facts in need(readings, "gpu") if node.expected["gpu_driver"]]
    off = [(node, facts["switched_off"]) for node, facts in managed if facts.get("switched_off")]
    found = [(node, facts) for node, facts in managed if facts["cards"] and not facts.get("switched_off")]
    if not found and not off:
        raise Skipped("no NVIDIA card, or motley_gpu_driver_manage is false")
    wrong = []
    for node, switch in off:
        what, fix = switched_off_fault(switch, node.name)
        wrong.append(Finding(node=node.name, what=what, fix=fix))
    for node, facts in found:
        what, _, fix = node.driver_fault.partition("\nfix: ")
        elsewhere = "No space left on device" in what or any(card["lost"] for card in facts["cards"])
        if what and not elsewhere:  # the disk's finding, or the card's
            fix = fix or bootstrap("gpu_driver", node.name)
            if "--nodes" not in fix:  # the node itself does not know by which name it is called here
                fix = fix.replace("--phase gpu_driver", f"--phase gpu_driver --nodes {node.name}", 1)
            wrong.append(Finding(node=node.name, what=what, fix=fix))
    nodes = len(found) + len(off)
    return f"driver and compiler work on {nodes - len(wrong)} of {nodes} nodes with cards", wrong


def gpu(readings: Readings) -> Found:
    found = [(node, facts) for node, facts in need(readings, "gpu") if facts["cards"]]
    if not found:
        raise Skipped("no NVIDIA card on any bus")
    busy = readings.runs_on
    wrong = [finding for node, facts in found for finding in _gpus_of(node, facts, running=node.name in busy)]
    shown = [gpu for _, facts in found for gpu in facts["shown"]]
    heat = [float(gpu["temperature.gpu"]) for gpu in shown if number(gpu["temperature.gpu"])]
    warm = f", up to {max(heat):.0f} °C" if heat else ""
    persists = sum(gpu["persistence_mode"] == "Enabled" for gpu in shown)
    return f"{len(shown)} GPUs answer{warm}; persistence on {persists}", wrong


def _gpus_of(node: NodeReadings, facts: Gpus, *, running: bool) -> list[Finding]:
    lost = [card["bus"] for card in facts["cards"] if card["lost"]]
    if lost:
        xid = f" (Xid {facts['xid']})" if facts["xid"] else ""
        what, fix = (
            f"the card at {listed(lost)} has fallen off the bus{xid}",
            "switch the machine off, wait, switch it on",
        )
        return [Finding(node=node.name, what=what, fix=fix)]
    findings = []
    game = facts.get("drawing", "")
    if game:
        what = f"in use by {game}, which draws on the card and holds much of its memory: a game, or the like"
        fix = "close it; or let the machine step aside automatically: motley_step_aside: auto"
        findings.append(Finding(probe="gpu in use", node=node.name, what=what, fix=fix, note=running))
    for card in facts["shown"]:
        slowed = _throttle(card["reasons"])
        if slowed:
            what = f"{card['name']} is throttled at {card['temperature.gpu']} °C: {slowed}"
            fix = "clean it, check its fan and air; or lower its limit: sudo nvidia-smi -pl WATTS"
            findings.append(Finding(probe="gpu throttled", node=node.name, what=what, fix=fix))
        if not running and not game and (what := _in_use(card, facts["programs"], throttled=bool(slowed))):
            fix = "close that program; on it: nvidia-smi shows which"
            findings.append(Finding(probe="gpu in use", node=node.name, what=what, fix=fix))
        limit, usual = number(card["power.limit"]), number(card["power.default_limit"])
        if limit and usual and limit < 0.9 * usual:
            what = f"{card['name']} is limited to {limit:.0f} of {usual:.0f} W"
            findings.append(Finding(node=node.name, what=what, fix=f"sudo nvidia-smi -pl {usual:.0f}", note=True))
    return findings


def _throttle(reasons: str) -> str:
    try:
        bits = int(reasons, 16)
    except ValueError:
        return ""  # not supported by that card
    return listed([words for bit, words in THROTTLED.items() if bits & bit])


def _in_use(card: dict[str, str], programs: list[str], *, throttled: bool) -> str:
    used, whole = number(card["memory.used"]), number(card["memory.total"])
    load = number(card["utilization.gpu"])
    full = bool(whole) and used > BUSY_MEMORY * whole
    if not full and not programs and (throttled or load < BUSY_PERCENT):
        return ""
    who = f" ({programs[0]})" if programs else ""
    taken = f"{load:.0f} % busy, {used / 1024:.1f} of {whole / 1024:.0f} GB taken"
    return f"{card['name']} is used by another program{who}: {taken}"
