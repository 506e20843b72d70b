#!/usr/bin/python3
"""nvidia-smi, simulated by the Motley lab: the options and words of the real program, the answers of a made-up card.

It looks where the real one looks (the library's file, /proc/driver/nvidia) and asks /run/simulated-hardware for the
rest.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CUDA_VERSION = None
"""Set where it is packed: the CUDA version that this driver branch carries."""
HARDWARE = Path("/run/simulated-hardware/card.json")
SETTINGS = Path("/run/motley-lab/nvidia-smi.json")
MODULE = Path("/proc/driver/nvidia/version")
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
REMARK = "simulated by the Motley lab, no NVIDIA software or hardware here"

Facts = dict[str, Any]

UNITS = {
    **dict.fromkeys(("memory.total", "memory.used", "memory.free"), "MiB"),
    **dict.fromkeys(("power.draw", "power.limit", "power.default_limit", "power.min_limit", "power.max_limit"), "W"),
    **dict.fromkeys(("clocks.sm", "clocks.max.sm"), "MHz"),
    "utilization.gpu": "%",
}
THROTTLE_BITS = {"gpu_idle": 0x1, "sw_power_cap": 0x4, "hw_slowdown": 0x8, "hw_thermal_slowdown": 0x40}


COOLEST, HOTTEST, TARGET = 65, 91, 83
"""What a GeForce takes as its target, and comes with."""


class Failed(Exception):
    """What the program prints before it ends with this status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


# -- what it looks at ------------------------------------------------------------------------------------------


def reachable(card: Facts, library: str | None, module: str | None) -> None:
    """Fail as the real program does where it gets no answer from library, module or card."""
    if library is None:
        raise Failed(
            "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display"
            " Driver is properly installed and present in your system.\nPlease also try adding directory that contains"
            " libnvidia-ml.so to your system PATH.",
            12,
        )
    if module is None:
        raise Failed(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest"
            " NVIDIA driver is installed and running.\n",
            9,
        )
    if library not in module:
        nvml = ".".join(library.split(".")[:2])
        raise Failed(f"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {nvml}", 18)
    if not card or (card["needs_open_modules"] and "Open Kernel Module" not in module):
        raise Failed("No devices were found", 6)
    if card["lost"]:
        raise Failed(
            f"Unable to determine the device handle for GPU{card['bus_id']}: GPU is lost.  Reboot the system to recover"
            " this GPU\n",
            15,
        )


def library_version(folder: Path = LIBRARIES) -> str | None:
    found = [path.name.removeprefix("libnvidia-ml.so.") for path in folder.glob("libnvidia-ml.so.*.*")]
    return max(found, key=lambda version: [int(part) for part in version.split(".")], default=None)


def settings() -> Facts:
    return dict(json.loads(SETTINGS.read_text())) if SETTINGS.exists() else {}


def set_(changes: Facts) -> None:
    SETTINGS.write_text(json.dumps(settings() | changes))


def facts(card: Facts, library: str, chosen: Facts) -> Facts:
    """Every field that can be queried, without units."""
    load = _load(card, chosen)
    memory = card["memory_mib"]
    # Drivers of laptops give no limit and take none.
    limit = None if card["laptop"] else f"{chosen.get('power_limit_w', card['power_limit_w']):.2f}"
    return {
        "index": 0,
        "name": card["name"],
        "driver_version": library,
        "uuid": card["uuid"],
        "compute_cap": card["compute_capability"],
        "pci.bus_id": f"0000{card['bus_id']}",
        "target": None if card["laptop"] else int(chosen.get("target", TARGET)),
        "persistence_mode": "Enabled" if chosen.get("persistence") else "Disabled",
        "memory.total": memory,
        "memory.free": memory - 290 - load["memory.used"],
        "power.limit": limit,
        "power.default_limit": limit and f"{card['power_limit_w']:.2f}",
        "power.min_limit": limit and f"{card['power_limit_w'] / 3:.2f}",
        "power.max_limit": limit and f"{card['power_limit_w'] * 1.1:.2f}",
        **load,
    }


def _load(card: Facts, chosen: Facts) -> Facts:
    """How hard the card works: idle, busy for somebody, or too hot to run at full speed."""
    full_w = float(chosen.get("power_limit_w") or card["power_limit_w"])
    if card["on_battery"]:
        full_w = min(full_w, 55.0)
    idle = not card["busy"] and not card["hot"]
    reasons = ["gpu_idle"] if idle else ["hw_slowdown", "hw_thermal_slowdown"] if card["hot"] else []
    reasons += ["sw_power_cap"] if card["on_battery"] and not idle else []
    bits = f"0x{sum(THROTTLE_BITS[reason] for reason in reasons):016X}"
    return {
        "memory.used": int(card["memory_mib"] * 0.7) if card["busy"] else 12,
        "temperature.gpu": 38 if idle else 95 if card["hot"] else min(71, int(chosen.get("target", TARGET))),
        "utilization.gpu": 0 if idle else 97,
        "power.draw": f"{full_w * (0.06 if idle else 0.5 if card['hot'] else 0.96):.2f}",
        "pstate": "P8" if idle else "P2",
        "clocks.sm": 210 if idle else 900 if card["hot"] else 2610,
        "clocks.max.sm": 2610,
        # The old name of this field and the new one.
        **dict.fromkeys(("clocks_throttle_reasons.active", "clocks_event_reasons.active"), bits),
    }


# -- what it prints --------------------------------------------------------------------------------------------


def csv(names: list[str], known: Facts, style: list[str]) -> str:
    for name in names:
        if name not in known:
            raise Failed(f'Field "{name}" is not a valid field to query.\n', 2)
    headers = [f"{name} [{UNITS[name]}]" if name in UNITS else name for name in names]
    values = [_value(name, known[name], units="nounits" not in style) for name in names]
    return "\n".join(([] if "noheader" in style else [", ".join(headers)]) + [", ".join(values)])


def _value(name: str, value: Any, *, units: bool) -> str:
    if value is None:
        return "[N/A]"
    return f"{value} {UNITS[name]}" if units and name in UNITS else str(value)


def table(known: Facts) -> str:
    width = 89
    usage = known["utilization.gpu"]
    persistence = "On" if known["persistence_mode"] == "Enabled" else "Off"
    limit = known["power.limit"] or "N/A"
    power = f"{float(known['power.draw']):.0f}W / {limit if limit == 'N/A' else f'{float(limit):.0f}W'}"
    memory = f"{known['memory.used']}MiB / {known['memory.total']}MiB"
    version = known["driver_version"]
    rows = [
        REMARK,
        f"NVIDIA-SMI {version:<22} Driver Version: {version:<16} CUDA Version: {CUDA_VERSION}",
        None,
        f"  0  {known['name']:<38} {persistence:>4} {known['pci.bus_id']}",
        f"     {known['temperature.gpu']}C  {known['pstate']}  {power:>15}   {memory:>22}   {usage:>3}%",
    ]
    line = f"+{'-' * width}+"
    return "\n".join([line, *(line if row is None else f"| {row:<{width - 2}} |" for row in rows), line])


# -- what it sets ----------------------------------------------------------------------------------------------


def need_root(what: str, bus: str) -> None:
    if os.geteuid() != 0:
        raise Failed(
            f"Unable to {what} for GPU {bus}: Insufficient Permissions\nTerminating early due to previous errors.", 4
        )


def set_persistence(word: str, known: Facts) -> str:
    bus = known["pci.bus_id"]
    need_root("set persistence mode", bus)
    state = "Enabled" if word in {"1", "ENABLED"} else "Disabled"
    if known["persistence_mode"] == state:
        return f"Persistence mode is already {state} for GPU {bus}.\nAll done."
    set_({"persistence": state == "Enabled"})
    return f"{state} persistence mode for GPU {bus}.\nAll done."


def set_power_limit(word: str, known: Facts) -> str:
    bus, now = known["pci.bus_id"], known["power.limit"]
    if now is None:
        return (
            f"Changing power management limit is not supported for GPU: {bus}.\n"
            "Treating as warning and moving on.\nAll done."
        )
    need_root("set power limit", bus)
    low, high, wanted = float(known["power.min_limit"]), float(known["power.max_limit"]), float(word)
    if not low <= wanted <= high:
        raise Failed(
            f"Provided power limit {wanted:.2f} W is not a valid power limit which should be between {low:.2f} W and"
            f" {high:.2f} W for GPU {bus}\nTerminating early due to previous errors.",
            2,
        )
    set_({"power_limit_w": wanted})
    return f"Power limit for GPU {bus} was set to {wanted:.2f} W from {now} W.\nAll done."


def set_target_temperature(word: str, known: Facts) -> str:
    bus, now = known["pci.bus_id"], known["target"]
    if now is None:
        words = f"Setting target temperature is not supported for GPU: {bus}."
        return f"{words}\nTreating as warning and moving on.\nAll done."
    need_root("set target temperature", bus)
    if not COOLEST <= int(word) <= HOTTEST:
        raise Failed(
            f"Provided target temperature {word} C is not valid; it should be between {COOLEST} C and {HOTTEST} C for"
            f" GPU {bus}\nTerminating early due to previous errors.",
            2,
        )
    set_({"target": int(word)})
    return f"GPU target temperature for GPU {bus} was set to {word} C from {now} C.\nAll done."


def temperatures(known: Facts) -> str:
    """What -q -d TEMPERATURE shows, as far as somebody here reads it."""
    target = "N/A" if known["target"] is None else f"{known['target']} C"
    rows = {"GPU Current Temp": f"{known['temperature.gpu']} C", "GPU Target Temperature": target}
    lines = [f"GPU {known['pci.bus_id']}", "    Temperature", *(f"        {k:<34}: {v}" for k, v in rows.items())]
    return "\n".join(["==============NVSMI LOG==============", REMARK, *lines])


# -- the command line ------------------------------------------------------------------------------------------

SETTERS: dict[str, Callable[[str, Facts], str]] = {
    "-pm": set_persistence,
    "--persistence-mode": set_persistence,
    "-pl": set_power_limit,
    "--power-limit": set_power_limit,
    "-gtt": set_target_temperature,
    "--gpu-target-temp": set_target_temperature,
}
TAKES_VALUE = {*SETTERS, "--query-gpu", "--query-compute-apps", "--format", "-i", "--id", "-d", "--display"}
ALONE = {"-L", "--list-gpus", "-q", "--query"}


def parse(words: list[str]) -> dict[str, str]:
    """Options with their values: `--name=value` and `-n value` alike."""
    options: dict[str, str] = {}
    rest = list(words)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name in ALONE:
            options[name] = ""
        elif name in TAKES_VALUE and (equals or rest):
            options[name] = value if equals else rest.pop(0)
        else:
            raise Failed(f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n({name})", 2)
    return options


def answer(options: dict[str, str], known: Facts) -> str:
    asked = options.keys()
    if (wanted := options.get("-i", options.get("--id", "0"))) not in {"0", known["pci.bus_id"], known["uuid"]}:
        raise Failed(f"No devices were found with id {wanted}", 6)
    for name, set_it in SETTERS.items():
        if name in options:
            return set_it(options[name], known)
    if asked & {"--query-gpu", "--query-compute-apps"}:
        return query(options, known)
    if asked & {"-q", "--query"}:
        if options.get("-d", options.get("--display")) != "TEMPERATURE":
            raise Failed("the lab's nvidia-smi shows of -q only -d TEMPERATURE", 2)
        return temperatures(known)
    if asked & ALONE:
        return f"GPU 0: {known['name']} (UUID: {known['uuid']})"
    return table(known)


def query(options: dict[str, str], known: Facts) -> str:
    style = re.split(r",\s*", options.get("--format", ""))
    if "csv" not in style:
        raise Failed("\"--format=\" is missing 'csv', the only format that is supported.", 2)
    if "--query-compute-apps" in options:  # no process here computes on a card that is not there
        return "" if "noheader" in style else options["--query-compute-apps"].replace(",", ", ")
    return csv(re.split(r",\s*", options["--query-gpu"]), known, style)


def main() -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `nvidia-smi | head` ends as any other program does
    try:
        options = parse(sys.argv[1:])
        card = dict(json.loads(HARDWARE.read_text()))
        library = library_version()
        reachable(card, library, MODULE.read_text() if MODULE.exists() else None)
        print(answer(options, facts(card, str(library), settings())))
    except Failed as failed:
        print(failed)
        return failed.status
    return 0


if __name__ == "__main__":
    sys.exit(main())
