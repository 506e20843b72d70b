"""What apt and dpkg say, as data, and what follows from it for a driver and its kernel. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from . import files
from .driver_facts import Catalogue, GpuLook, Smi

Data = dict[str, Any]

# The firmware knows their keys by way of the distribution's boot loader.
TRUSTED_SIGNERS = ("Canonical", "Debian")


@dataclass(frozen=True)
class Package:
    version: str
    depends: str = ""
    auto: bool = False
    held: bool = False


@dataclass(frozen=True)
class Simulated:
    """What apt would do."""

    installs: dict[str, str] = field(default_factory=dict)
    removes: tuple[str, ...] = ()
    trouble: str = ""


def parse_simulation(output: str) -> Simulated:
    """The Inst and Remv lines of `apt-get -s`."""
    installs, removes = {}, []
    for line in output.splitlines():
        if match := re.match(r"Inst (\S+) (?:\[[^]]*\] )?\((\S+) ", line):
            installs[match[1]] = match[2]
        elif match := re.match(r"(?:Remv|Purg) (\S+) ", line):
            removes.append(match[1])
    return Simulated(installs, tuple(removes))


def base_name(package: str) -> str:
    return package.partition(":")[0]


def difference(was: dict[str, Package], now: dict[str, Package]) -> dict[str, str]:
    """The packages that come, go or are held, as they were and as they are."""
    names = sorted(name for name in {*was, *now} if was.get(name) != now.get(name))

    def lines(packages: dict[str, Package]) -> str:
        there = [(name, packages[name]) for name in names if name in packages]
        return "".join(f"{name} {package.version}{' (held)' if package.held else ''}\n" for name, package in there)

    return files.difference("packages", lines(was), lines(now))


def kernel_metapackages(packages: dict[str, Package], catalogue: Catalogue) -> list[str]:
    """Installed packages that lead to a kernel, however they are called here: these decide when a new one comes."""
    leads = {name for name in packages if re.search(catalogue["kernel_packages"], name)}
    kernels = set(leads)
    while True:
        more = {
            name
            for name, package in packages.items()
            if name.startswith("linux-") and name not in leads and depends_on(package) & {base_name(n) for n in leads}
        }
        if not more:
            return sorted(name for name in leads - kernels if not re.search(catalogue["driver_packages"], name))
        leads |= more


def depends_on(package: Package) -> set[str]:
    return {base_name(word.split()[0]) for word in re.split(r"[,|]", package.depends) if word.strip()}


def images(packages: dict[str, Package], catalogue: Catalogue) -> list[str]:
    """Installed kernels, oldest first."""
    found = [name for name in packages if re.search(catalogue["kernel_images"], name)]
    return sorted(found, key=lambda name: natural(release_of(name)))


def natural(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text) if part]


def release_of(image: str) -> str:
    return re.sub(r"^linux-image-(unsigned-)?", "", image)


def tracks(metapackages: list[str]) -> list[str]:
    """What the installed kernel metapackages follow: generic, generic-hwe-24.04, amd64."""
    return [name.removeprefix("linux-image-") for name in metapackages if name.startswith("linux-image-")]


def protected(packages: dict[str, Package], catalogue: Catalogue) -> list[str]:
    """What a hold must keep: driver, CUDA, and all that leads to a kernel."""
    driver = [name for name in packages if re.search(catalogue["driver_packages"], base_name(name))]
    return sorted({*driver, *kernel_metapackages(packages, catalogue)})


def touches(simulated: Simulated, packages: dict[str, Package], catalogue: Catalogue) -> list[str]:
    """What an upgrade would do to driver, CUDA or kernel."""
    patterns = (catalogue["driver_packages"], catalogue["kernel_packages"])
    metapackages = set(kernel_metapackages(packages, catalogue))
    return [
        name
        for name in (*simulated.installs, *simulated.removes)
        if name in metapackages or any(re.search(pattern, base_name(name)) for pattern in patterns)
    ]


def draws(packages: Iterable[str], catalogue: Catalogue) -> list[str]:
    """Installed packages that draw a desktop."""
    return sorted(name for name in packages if re.search(catalogue["desktop_packages"], base_name(name)))


def like(package: str) -> str:
    """libnvidia-gl:i386 of libnvidia-gl-580:i386: what a package is, whatever its branch."""
    return re.sub(r"-\d+(?=:|$)", "", package)


def of_branch(package: str, branch: str) -> str:
    """libnvidia-gl-580:i386 of libnvidia-gl-570:i386."""
    return re.sub(r"-\d+(?=:|$)", f"-{branch}", package)


def leads_to(package: str, depends: str) -> str:
    """580 where a package called 570 only needs the same package of 580; empty where it is what it is called."""
    needed = next(iter(depends.split()), "").rstrip(",")
    same = re.sub(r"-\d+(?=-|$)", "", needed) == re.sub(r"-\d+(?=-|$)", "", package)
    branch = re.search(r"-(\d+)(?=-|$)", needed)
    return branch[1] if same and branch and needed != package else ""


def side_effects(simulated: Simulated, packages: dict[str, Package], catalogue: Catalogue) -> dict[str, list[str]]:
    """Kernels that would come, go or change their build, software that would go and is no driver, and what draws a
    desktop and would go without its like."""
    concerned = {**dict.fromkeys(simulated.removes, ""), **simulated.installs}
    kernels = [
        name
        for name, version in concerned.items()
        if re.search(catalogue["kernel_images"], name) and not (name in packages and packages[name].version == version)
    ]
    stay = {like(name) for name in {*packages, *simulated.installs} - {*simulated.removes}}
    undrawn = [name for name in draws(simulated.removes, catalogue) if like(name) not in stay]
    return {"kernels": kernels, "strangers": strangers(simulated.removes, catalogue), "undrawn": undrawn}


def strangers(names: Iterable[str], catalogue: Catalogue) -> list[str]:
    """The packages that belong neither to the driver nor to CUDA."""
    return [name for name in names if not re.search(catalogue["driver_packages"], base_name(name))]


def choose_modules(methods: list[Data], params: Data) -> Data:
    """The first method to get the modules that moves no kernel, removes no other software and loads under Secure Boot.

    Each method has how, signed and packages, and what speaks against it: trouble, kernels, strangers (software that
    would go), undrawn (what draws a desktop and would go), builds (modules that would be compiled), other (a version
    that does not fit).
    """
    against = []
    for method in methods:
        if reason := _against(method, params):
            against.append(f"{method['how']}: {reason}")
        else:
            return {"method": method}
    fix = "give it a package source that has them (docs/cards.md)"
    if any(method["kernels"] for method in methods):
        fix = "upgrade it first (sudo apt full-upgrade, then restart it) and run again"
    elif params["secure_boot"] and not methods[-1]["trouble"]:
        fix = "read docs/cards.md (Secure Boot); then again, with motley_gpu_driver_own_key: true in hosts.yml"
    return {"error": "no source of the driver's modules; " + "; ".join(against), "fix": fix}


def _against(method: Data, params: Data) -> str:
    if method["trouble"]:
        return str(method["trouble"])
    if method["kernels"]:
        return f"would bring another kernel ({', '.join(method['kernels'])})"
    if gone := [*method["strangers"], *(f"{name}, which draws its desktop" for name in method["undrawn"])]:
        return f"would remove {', '.join(gone)}"
    if method["signed"] and method["builds"]:
        return f"would build modules here ({', '.join(method['builds'])})"
    if not method["signed"] and params["secure_boot"] and not params["own_key"]:
        return "Secure Boot would ask for their key on the machine's own screen"
    return str(method["other"])


def least_of(depends: str, package: str) -> str:
    """580.95.05 of "nvidia-kernel-common-580 (>= 580.95.05)"; empty where it names none."""
    match = re.search(rf"(?:^|[ ,]){re.escape(package)} \(>= ([^)]+)\)", depends)
    return version_of_driver(match[1]) if match else ""


def key_is_known(signer: str, look: GpuLook) -> bool:
    """Keys of the distribution, and the key of a module that this firmware has let in."""
    return signer.startswith(TRUSTED_SIGNERS) or (bool(look["loaded"]) and signer == look["loaded_signer"])


def key_question(signer: str, key: str) -> tuple[str, str]:
    return (
        f"Secure Boot is on and does not know the key of the modules built here ({signer or 'not signed'})\n"
        "its own screen will ask after the restart: Enroll MOK, Continue, Yes, the password, Reboot",
        f"sudo mokutil --import {key} (choose a password), sudo reboot, sit at its screen; then run again",
    )


def version_of_driver(text: str) -> str:
    """580.95.05 of 580.95.05-0ubuntu0.24.04.1, also behind an epoch."""
    match = re.match(r"(?:\d+:)?(\d+(?:\.\d+)+)", text)
    return match[1] if match else ""


def pin_text(names: list[str]) -> str:
    entries = [f"Package: {name}\nPin: release *\nPin-Priority: -1\n" for name in sorted(names)]
    return "# Written by Motley: kernels and drivers that an upgrade would have brought in spite of the holds.\n\n" + (
        "\n".join(entries)
    )


def proof_fault(look: GpuLook) -> tuple[str, str]:
    """Why the driver does not serve every card, and the fix; both empty when it does."""
    installed, loaded, smi = look["installed"], look["loaded"], look["smi"]
    lost = [card["bus"] for card in look["cards"] if card["lost"]]
    if lost:
        return f"the card at {', '.join(lost)} has fallen off the bus", "switch the machine off, wait, switch it on"
    if not installed:
        return "no driver is installed", "./motley bootstrap --phase gpu_driver"
    if not loaded:
        if look["secure_boot"] and not look["module_signer"].startswith(TRUSTED_SIGNERS):
            return "Secure Boot does not let its module load", "enrol the module's key: docs/cards.md (Secure Boot)"
        return "its module is not loaded", f"see why: sudo dmesg | grep -iE 'nvrm|nvidia|key'; {restart_it()}"
    if loaded["version"] != installed["version"]:
        return f"the module is {loaded['version']}, the library {installed['version']}", restart_it()
    return _smi_fault(look, smi)


def _smi_fault(look: GpuLook, smi: Smi) -> tuple[str, str]:
    if smi["trouble"]:
        return f"nvidia-smi says: {smi['trouble']}", "see why: sudo dmesg | grep -iE 'nvrm|xid'"
    driver = look["installed"]["version"]
    answering = {bus_key(row["bus"]) for row in smi["cards"]}
    silent = [card["bus"] for card in look["cards"] if bus_key(card["bus"]) not in answering]
    if silent:
        return f"nvidia-smi does not see the card at {', '.join(silent)}", "see why: sudo dmesg | grep -iE 'nvrm|xid'"
    other = {row["driver"] for row in smi["cards"]} - {driver}
    if other:
        return f"nvidia-smi speaks of driver {', '.join(other)}, {driver} is installed", restart_it()
    return "", ""


def bus_key(bus: str) -> str:
    """nvidia-smi writes 00000000:01:00.0 where the kernel writes 0000:01:00.0."""
    return bus.lower()[-12:]


def xids(log: str) -> list[str]:
    """The numbers of the faults that the driver reported, in their order."""
    return re.findall(r"NVRM: Xid \([^)]*\): (\d+)", log)


# By what a card was switched off: how that is shown, the command that switches it on, and what becomes of the desktop.
SWITCHES = {
    "prime-select": (
        "prime-select intel",
        "sudo prime-select on-demand && sudo reboot",
        "the desktop stays with the processor's graphics, the card computes and takes power again",
    ),
    "bbswitch": (
        "bbswitch",
        "echo ON | sudo tee /proc/acpi/bbswitch",
        "the desktop stays as it is, the card takes power again",
    ),
}


def switched_off_fault(switch: str, name: str) -> tuple[str, str]:
    """What is wrong where its owner gave the desktop to the processor's graphics and the card no power, and the fix."""
    shown, command, then = SWITCHES[switch]
    what = f"its graphics are switched to the processor's own ({shown}), the NVIDIA card is off"
    return what, f"on {name}: {command}: {then}; or motley_gpu: none for it, to train on its processor"


def restart_it() -> str:
    return "restart it: ./motley bootstrap --phase gpu_driver --reboot yes"
