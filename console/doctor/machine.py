"""Clock, power, disk, processor, package manager: the machine itself. Pure."""

from __future__ import annotations

from console.doctor.probe_helpers import WITHOUT_ROOT, Found, Skipped, bootstrap, need, no_load
from console.doctor.readings_and_findings import Facts, Finding, Readings

CORE_SHARE = 0.14
DISK_MB_S = 5.0
ROOM_WITH_ENV_GB = 5.0


def clock(readings: Readings) -> Found:
    wrong, seen = [], []
    for node, facts in need(readings, "clock"):
        seen.append(abs(facts["skew_s"]))
        if abs(facts["skew_s"]) > node.expected["skew_s"]:
            what = f"its clock is {facts['skew_s']:+.0f} s off the controller's"
            fix = bootstrap("clock", node.name) + "; see timedatectl there: it needs an NTP server that it can reach"
            wrong.append(Finding(node=node.name, what=what, fix=fix, phase="clock", safe=True))
    return f"at most {max(seen):.1f} s off", wrong


def power(readings: Readings) -> Found:
    wrong = []
    sources = need(readings, "power")
    for node, facts in sources:
        if facts["battery"] and not facts["on_mains"]:
            what = f"it runs on battery ({facts['percent'] or '?'} %): slower, and not for long"
            wrong.append(Finding(node=node.name, what=what, fix="plug it in"))
        if facts["lid"] == "closed":
            what = "its lid is closed: while a run is running it stays awake, but it cools worse"
            wrong.append(Finding(node=node.name, what=what, fix="open it", note=True))
    laptops = sum(facts["battery"] for _, facts in sources)
    kinds = f"{laptops} of {len(sources)} with a battery" if laptops else "all on mains"
    return f"{kinds}; a run keeps them awake", wrong


def disk(readings: Readings) -> Found:
    wrong, seen = [], []
    for node, facts in need(readings, "disk"):
        least = float(node.expected["disk_gb"])
        if (node.part("files") or {}).get("torch"):
            least = min(least, ROOM_WITH_ENV_GB)  # the environment is there already
        for place, part in facts.items():
            if place != "home" and part | {"path": ""} == facts["home"] | {"path": ""}:
                continue  # the same file system
            needed = least if place == "home" else min(least, 0.5)
            about: Facts = {"node": node.name, "fix": f"on it: sudo du -xhd1 {part['path']} | sort -h"}
            if part["read_only"]:
                about["fix"] = "on it: sudo dmesg | grep -i error; a disk that fails turns read-only"
                wrong.append(Finding(what=f"{part['path']} is read-only", **about))
            elif part["free_gb"] < needed:
                what = f"{part['free_gb']:.1f} GB are free for {part['path']}, {needed:g} GB are needed"
                wrong.append(Finding(what=what, **about))
            elif part["free_files"] == 0:
                wrong.append(Finding(what=f"{part['path']} can hold no more files", **about))
        seen.append(facts["home"]["free_gb"])
    speeds = {node.name: node.part("disk_speed") for node in readings.looked_at if node.part("disk_speed")}
    for name, facts in speeds.items():
        if facts["write_mb_s"] < DISK_MB_S:
            what = f"its disk writes {facts['write_mb_s']:.1f} MB/s"
            wrong.append(Finding(node=name, what=what, fix="on it: sudo dmesg | grep -i error; is it busy?"))
    rates = [facts["write_mb_s"] for facts in speeds.values()]
    wrote = f", writes {min(rates):.0f}–{max(rates):.0f} MB/s" if rates else ", speed not tried"
    return f"{min(seen):.0f}–{max(seen):.0f} GB free{wrote}", wrong


def processor(readings: Readings) -> Found:
    no_load(readings)
    wrong, shares = [], []
    for node, facts in need(readings, "processor"):
        shares.append(facts["share"])
        if facts["share"] < CORE_SHARE:
            shared = facts["load"] > 1.5 * facts["cores"]
            why = f"other programs take the rest (load {facts['load']:.0f})" if shared else "something throttles it"
            what = f"a busy program gets {facts['share']:.0%} of a core: {why}"
            fix = "see which program takes it, on it: top"
            wrong.append(Finding(node=node.name, what=what, fix=fix, note=shared))
    return f"{min(shares):.0%}–{max(shares):.0%} of a core for a busy program", wrong


def apt(readings: Readings) -> Found:
    holders = [(node, facts["holder"]) for node, facts in need(readings, "apt") if facts["holder"] is not None]
    if not holders:
        raise Skipped(WITHOUT_ROOT)
    fix = "let it finish; on it: systemctl status apt-daily-upgrade unattended-upgrades"
    wrong = [Finding(node=node.name, what=f"apt is busy: {holder}", fix=fix) for node, holder in holders if holder]
    return f"free on {len(holders) - len(wrong)} of {len(holders)} nodes", wrong
