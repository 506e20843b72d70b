#!/usr/bin/python3
"""The lab host's simulated hardware, from inside: what the kernel and its driver do on a real machine.

hardware boot                  answer /sys and /proc from /run/simulated-hardware, then load the driver if it can be
hardware modprobe [-r] NAME    load or unload the driver by hand; any other module is the real modprobe's business
hardware pretend VERSION       as if the loaded module were of that version
hardware say LEVEL TEXT        a line in the kernel's log
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import stat
import sys
import time
from pathlib import Path
from typing import Any

HARDWARE = Path("/run/simulated-hardware")
STATE = Path("/run/motley-lab")
DRIVER = STATE / "proc-driver" / "nvidia"
MODULES = Path("/lib/modules")
PRIME = Path("/etc/prime-discrete")
REAL_MODPROBE = "/sbin/modprobe"
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC = 0x1, 0x20, 0x1000, 0x4000
SECURE_BOOT = "efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
DATE = "Sat Nov  1 00:00:00 UTC 2025"


def main(arguments: list[str]) -> int:
    match arguments:
        case ["boot"]:
            answer_from_the_lab()
            choose_kernel()
            load()
        case ["modprobe", *words]:
            return modprobe(words)
        case ["pretend", version]:
            show_driver(DRIVER, {**loaded_module(), "version": version}, card())
        case ["say", level, text]:
            say(int(level), text)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


def card() -> dict[str, Any]:
    """The graphics card, or nothing."""
    seen = not (STATE / "pci").exists()
    return dict(json.loads((HARDWARE / "card.json").read_text())) if seen else {}


def own_key() -> bool:
    """Whether the firmware knows the key that modules are signed with on this machine."""
    return bool(json.loads((HARDWARE / "condition.json").read_text())["own_key"])


def secure_boot() -> bool:
    variable = Path("/sys/firmware") / SECURE_BOOT
    return variable.exists() and variable.read_bytes()[-1:] == b"\x01"


# -- /sys and /proc --------------------------------------------------------------------------------------------


def answer_from_the_lab() -> None:
    """Lay the simulated answers over those of the real machine that this host runs on."""
    (STATE / "proc-driver").mkdir(parents=True)
    (STATE / "modules").mkdir()
    lay(STATE / "proc-driver", Path("/proc/driver"))
    lay(STATE / "modules", Path("/sys/module"))  # a container has none: only the simulated driver's is shown
    lay(bus(), Path("/sys/bus/pci/devices"))
    lay(HARDWARE / "power_supply", Path("/sys/class/power_supply"))
    lay(HARDWARE / "dmi", Path("/sys/class/dmi"))
    lay(HARDWARE / "firmware", Path("/sys/firmware"))
    for source, target in ((HARDWARE / "dmi/id", "/sys/devices/virtual/dmi/id"), (HARDWARE / "acpi", "/proc/acpi")):
        if Path(target).is_dir():
            lay(source, Path(target))
    if Path("/proc/modules").exists():
        (STATE / "proc-modules").touch()
        bind(STATE / "proc-modules", Path("/proc/modules"))


def bus() -> Path:
    """The machine's devices; without the graphics card where its owner switched over to the processor's graphics."""
    whole = HARDWARE / "pci"
    if not switched_off():
        return whole
    left = STATE / "pci"
    for device in whole.iterdir():
        if (device / "vendor").read_text().strip() != "0x10de":
            shutil.copytree(device, left / device.name)
    return left


def switched_off() -> bool:
    return PRIME.exists() and PRIME.read_text().strip() == "off"


def lay(source: Path, target: Path) -> None:
    if not target.is_dir():
        there = next(folder for folder in target.parents if folder.is_dir())
        _make_room(there, target.relative_to(there))
    bind(source, target)


def _make_room(folder: Path, missing: Path) -> None:
    """A folder below /sys takes no new one: lay one of the same content, and the missing one, over it."""
    if folder == Path("/sys"):  # in a container this is a small disk in memory, with parts of the real /sys laid on it
        mount(None, folder, MS_REMOUNT | MS_BIND)
        (folder / missing).mkdir(parents=True)
        mount(None, folder, MS_REMOUNT | MS_BIND | MS_RDONLY)  # systemd expects no udev where /sys cannot be written
        return
    copy = STATE / "rebuilt" / "-".join(folder.parts[1:])
    (copy / missing).mkdir(parents=True)
    for child in folder.iterdir():
        if child.is_dir():
            (copy / child.name).mkdir(exist_ok=True)
            bind(child, copy / child.name)
    bind(copy, folder)


def bind(source: Path, target: Path) -> None:
    mount(source, target, MS_BIND | MS_REC)


def mount(source: Path | None, target: Path, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source and bytes(source), bytes(target), None, flags, None):
        error = ctypes.get_errno()
        raise OSError(error, f"{os.strerror(error)}: mount {source} over {target}")


# -- the kernel that "runs" ------------------------------------------------------------------------------------


def choose_kernel() -> None:
    """Boot the newest installed kernel, as GRUB does: modules of the name that `uname -r` gives are its modules."""
    found = sorted((path.name for path in MODULES.glob("*-generic") if (path / "modules.order").exists()), key=_age)
    running = MODULES / os.uname().release
    if found and (running.is_symlink() or not running.exists()):
        running.unlink(missing_ok=True)
        running.symlink_to(found[-1])


def _age(kernel: str) -> list[int]:
    return [int(part) for part in kernel.replace("-", ".").split(".") if part.isdigit()]


# -- the driver's module ---------------------------------------------------------------------------------------


def installed_module(kernel: Path) -> dict[str, str] | None:
    """The module that modprobe would take: one built here comes before one that was delivered."""
    found = [*kernel.glob("updates/**/nvidia.ko"), *sorted(kernel.glob("kernel/**/nvidia.ko"))]
    return module_facts(found[0].read_bytes()) if found else None


def module_facts(content: bytes) -> dict[str, str]:
    """What modinfo prints of it: key=value strings between zeros."""
    pairs = (entry.decode(errors="replace").partition("=") for entry in content.split(b"\0") if b"=" in entry)
    return {key: value for key, _, value in pairs}


def refusal(
    module: dict[str, str] | None, card: dict[str, Any], *, secure_boot: bool, own_key: bool = False
) -> str | None:
    """Why the module does not load, in modprobe's words, or nothing."""
    if module is None:
        return f"FATAL: Module nvidia not found in directory {MODULES}/{os.uname().release}"
    if secure_boot and not own_key and "Canonical" not in module.get("signer", ""):
        return "ERROR: could not insert 'nvidia': Key was rejected by service"
    if not card:
        return "ERROR: could not insert 'nvidia': No such device"
    return None


def kernel_log(module: dict[str, str], card: dict[str, Any]) -> list[tuple[int, str]]:
    """What the kernel says when this module meets this card."""
    lines = [(4, "nvidia: loading out-of-tree module taints kernel."), (5, f"NVRM: loading {banner(module)}")]
    if not works(module, card):
        bus = card["bus_id"]
        lines += [
            (3, f"NVRM: The NVIDIA GPU {bus} (PCI ID: {card['pci_id']})"),
            (3, "NVRM: installed in this system requires use of the NVIDIA open kernel modules."),
            (3, f"NVRM: GPU {bus}: RmInitAdapter failed! (0x22:0x56:884)"),
            (3, f"NVRM: GPU {bus}: rm_init_adapter failed, device minor number 0"),
        ]
    return lines


def works(module: dict[str, str], card: dict[str, Any]) -> bool:
    """Cards from the RTX 50 series on do not start with the proprietary module, although it loads."""
    return module["license"] != "NVIDIA" or not card.get("needs_open_modules")


def banner(module: dict[str, str]) -> str:
    if module["license"] == "NVIDIA":
        return f"NVIDIA UNIX x86_64 Kernel Module  {module['version']}  {DATE}"
    return f"NVIDIA UNIX Open Kernel Module for x86_64  {module['version']}  Release Build  (simulated)  {DATE}"


def load() -> str | None:
    module = installed_module(MODULES / os.uname().release)
    why_not = refusal(module, card(), secure_boot=secure_boot(), own_key=own_key())
    if module is None or why_not:
        if "Key was rejected" in (why_not or ""):
            say(3, "Loading of module with unavailable key is rejected")
        return why_not
    for level, line in kernel_log(module, card()):
        say(level, line)
    show_driver(DRIVER, module, card())
    return None


def unload() -> None:
    for file in sorted(DRIVER.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    if DRIVER.exists():
        DRIVER.rmdir()
    _show_module({})


def show_driver(folder: Path, module: dict[str, str], card: dict[str, Any]) -> None:
    """/proc/driver/nvidia of a loaded module."""
    information = folder / "gpus" / card["bus_id"]
    information.mkdir(parents=True, exist_ok=True)
    gcc = "gcc version 13.3.0 (simulated)"
    (folder / "version").write_text(f"NVRM version: {banner(module)}\nGCC version:  {gcc}\n")
    facts = {
        "Model": card["name"],
        "IRQ": "0",
        "GPU UUID": card["uuid"],
        "Video BIOS": "??.??.??.??.??",
        "Bus Type": "PCIe",
        "Bus Location": card["bus_id"],
        "Device Minor": "0",
    }
    (information / "information").write_text("".join(f"{key + ':':<17}{value}\n" for key, value in facts.items()))
    (folder / "module.json").write_text(json.dumps(module))
    _show_module(module)


def loaded_module() -> dict[str, str]:
    """Nothing when none is loaded."""
    file = DRIVER / "module.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _show_module(module: dict[str, str]) -> None:
    """/sys/module/nvidia and, where the real kernel has such a list, /proc/modules: lsmod reads both."""
    shown = STATE / "modules" / "nvidia"
    if module:
        shown.mkdir(exist_ok=True)
        (shown / "version").write_text(module["version"] + "\n")
        (shown / "initstate").write_text("live\n")
    elif shown.exists():
        for fact in shown.iterdir():
            fact.unlink()
        shown.rmdir()
    listed = STATE / "proc-modules"
    if listed.exists():  # written in place: this very file is what /proc/modules shows
        listed.write_text("nvidia 14381056 0 - Live 0x0000000000000000 (OE)\n" if module else "")


def modprobe(words: list[str]) -> int:
    names = [word for word in words if not word.startswith("-")]
    if not names or not names[0].startswith("nvidia"):
        os.execv(REAL_MODPROBE, ["modprobe", *words])
    if "-r" in words or "--remove" in words:
        unload()
        return 0
    trouble = None if loaded_module() else load()
    if trouble:
        print(f"modprobe: {trouble}", file=sys.stderr)
    return 1 if trouble else 0


# -- the kernel's log ------------------------------------------------------------------------------------------


def say(level: int, text: str) -> None:
    """A record as /dev/kmsg gives it, so that the journal takes it for the kernel's own."""
    counter = STATE / "kmsg-sequence"
    with counter.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        sequence = int(file.read() or "0")
        file.truncate(0)
        file.write(str(sequence + 1))
    if not stat.S_ISFIFO(Path("/dev/kmsg").stat().st_mode):
        raise SystemExit("/dev/kmsg is not the lab's")
    log = os.open("/dev/kmsg", os.O_WRONLY)
    fcntl.fcntl(log, fcntl.F_SETFL, os.O_DIRECT)  # packets: the journal must read one record at a time
    os.write(log, f"{level},{sequence},{time.monotonic_ns() // 1000},-;{text}\n".encode())
    os.close(log)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
