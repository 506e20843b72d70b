"""What can be broken in a host's simulated card, driver, firmware and power; registered with all other faults."""

from __future__ import annotations

from lab import gpu, repository
from lab.fault_kind import Fault, Fix, Settings, command, on_host
from lab.host import Host
from lab.lab import Lab
from lab.shell import LabError

HARDWARE = "/usr/lib/motley-lab/hardware"
XID_79 = "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
DRIVER_PACKAGES = ("nvidia-*", "libnvidia-*", "linux-modules-nvidia-*")
SOURCES = "/etc/apt/sources.list.d/lab-{}.list"
CRYPTTAB = "/etc/crypttab"
APT = "env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=60".split()


# -- the hardware itself -------------------------------------------------------------------------------------


def _happens(**condition: bool) -> Fix:
    """It shows on a graphics card."""

    def change(host: Host) -> None:
        _needs_card(host)
        gpu.change(host.hardware, host.spec, **condition)

    return on_host(change)


def _over(**condition: bool) -> Fix:
    return on_host(lambda host: gpu.change(host.hardware, host.spec, **condition))


def _fall_off_the_bus(host: Host) -> None:
    _needs_card(host)
    host.run(HARDWARE, "say", "3", XID_79)
    host.run(HARDWARE, "say", "3", f"NVRM: GPU {gpu.BUS}: GPU has fallen off the bus.")
    gpu.change(host.hardware, host.spec, lost=True)


def _unplug_mains(host: Host) -> None:
    if not host.spec.laptop:
        raise LabError(f"{host.name} is no laptop: it has no battery to run on", code=2)
    gpu.change(host.hardware, host.spec, on_battery=True)


def _secure_boot(on: bool) -> Fix:
    """The switch is in the firmware's setup: the machine restarts for it."""

    def turn(host: Host) -> None:
        host.power_off()
        gpu.change(host.hardware, host.spec, secure_boot=on)
        host.boot()

    return on_host(turn)


def _needs_card(host: Host) -> None:
    if host.spec.card == "none":
        raise LabError(f"{host.name} has no graphics card to break", code=2)


# -- the driver ----------------------------------------------------------------------------------------------


def _pretend_older_module(host: Host) -> None:
    """Pretends that a build older than the library's is loaded, as after an unattended upgrade without a reboot."""
    version = host.run("cat", "/sys/module/nvidia/version", check=False).strip()
    if not version:
        raise LabError(f"{host.name} has no driver loaded whose version could differ; install one first", code=2)
    host.run(HARDWARE, "pretend", f"{version.split('.')[0]}.00.01")


def _reload_module(host: Host) -> None:
    host.run(HARDWARE, "modprobe", "-r", "nvidia")
    host.run(HARDWARE, "modprobe", "nvidia", check=False)


def _no_driver(_: Lab, host: Host, __: Settings) -> Settings:
    return _replace_driver(host, [])


def _driver_570(_: Lab, host: Host, __: Settings) -> Settings:
    _needs_card(host)
    image = host.run("dpkg-query", "-W", "-f", "${Package}\n", "linux-image-generic*").split()[0]
    flavour = "570-open" if gpu.card(host.spec).needs_open_modules else "570"
    modules = image.replace("linux-image", f"linux-modules-nvidia-{flavour}")
    return _replace_driver(host, [f"nvidia-driver-{flavour}", modules])


def _driver_back(_: Lab, host: Host, chosen: Settings) -> None:
    _replace_driver(host, str(chosen["installed"]).split())
    if held := str(chosen["held"]).split():
        host.run("apt-mark", "hold", *held)


def _replace_driver(host: Host, wanted: list[str]) -> Settings:
    """Install these driver packages in place of what there is, load the result, return what there was."""
    listed = "${db:Status-Abbrev} ${Package} ${Version}\n"
    known = host.run("dpkg-query", "-W", "-f", listed, *DRIVER_PACKAGES, check=False).splitlines()
    there = {name: version for state, name, version in (line.split() for line in known if line[1] == "i")}
    held = sorted(there.keys() & set(host.run("apt-mark", "showhold").split()))
    host.run(HARDWARE, "modprobe", "-r", "nvidia")
    if there:
        host.run(*APT, "purge", "--allow-change-held-packages", *there)
    if wanted:
        host.run(*APT, "update")
        host.run(*APT, "install", *wanted)
        host.run(HARDWARE, "modprobe", "nvidia", check=False)
    return {"installed": " ".join(f"{name}={version}" for name, version in there.items()), "held": " ".join(held)}


# -- the repository ------------------------------------------------------------------------------------------


def _publish(folder: str) -> Fix:
    file = SOURCES.format(folder)
    return on_host(lambda host: host.run("tee", file, stdin=f"deb [trusted=yes] {host.repository}/{folder}/ ./\n"))


# -- how its owner set it up ---------------------------------------------------------------------------------


def _encrypt(host: Host) -> None:
    """Marks the root as encrypted, as the installer leaves it: the passphrase is asked for at every start."""
    gpu.change(host.hardware, host.spec, encrypted=True)
    host.run("tee", CRYPTTAB, stdin=gpu.CRYPTTAB_LINE)


def _decrypt(host: Host) -> None:
    host.run("rm", "-f", CRYPTTAB)
    gpu.change(host.hardware, host.spec, encrypted=False)


def _switch_graphics_off(host: Host) -> None:
    _needs_card(host)
    host.run(*APT, "update")
    host.run(*APT, "install", "nvidia-prime")
    host.run("prime-select", "intel")
    _restart(host)


def _switch_graphics_on(host: Host) -> None:
    host.run("prime-select", "on-demand")
    _restart(host)


def _restart(host: Host) -> None:
    host.power_off()
    host.boot()


FAULTS: dict[str, Fault] = {
    "gpu-lost": Fault(
        meaning="its graphics card has fallen off the bus (Xid 79)",
        inject=on_host(_fall_off_the_bus),
        fix=_over(lost=False),
    ),
    "gpu-busy": Fault(meaning="somebody else computes on its card", inject=_happens(busy=True), fix=_over(busy=False)),
    "gpu-hot": Fault(meaning="its card throttles, it is too hot", inject=_happens(hot=True), fix=_over(hot=False)),
    "on-battery": Fault(
        meaning="the laptop's mains plug is out", inject=on_host(_unplug_mains), fix=_over(on_battery=False)
    ),
    "secure-boot": Fault(
        meaning="Secure Boot was switched on in its firmware, it restarted",
        inject=_secure_boot(True),
        fix=_secure_boot(False),
    ),
    "driver-none": Fault(meaning="its graphics driver is gone", inject=_no_driver, fix=_driver_back),
    "driver-570": Fault(meaning="driver 570 is installed and loaded", inject=_driver_570, fix=_driver_back),
    "driver-mismatch": Fault(
        meaning="its driver's library is newer than the loaded module",
        inject=on_host(_pretend_older_module),
        fix=on_host(_reload_module),
    ),
    "newer-packages": Fault(
        meaning="newer drivers and kernels are in its repository, for the next apt update",
        inject=_publish(repository.LATER),
        fix=command("rm", SOURCES.format(repository.LATER)),
    ),
    "570-leads-to-580": Fault(
        meaning="its repository makes no driver 570 any more: packages of that name lead to 580",
        inject=_publish(repository.RENAMED),
        fix=command("rm", SOURCES.format(repository.RENAMED)),
    ),
    "own-key": Fault(
        meaning="its firmware knows the key that modules are signed with on this machine",
        inject=_happens(own_key=True),
        fix=_over(own_key=False),
    ),
    "encrypted-disk": Fault(
        meaning="its disk is encrypted: every start waits at its passphrase",
        inject=on_host(_encrypt),
        fix=on_host(_decrypt),
    ),
    "processor-graphics": Fault(
        meaning="its graphics were switched to the processor's own (prime-select intel), it restarted",
        inject=on_host(_switch_graphics_off),
        fix=on_host(_switch_graphics_on),
    ),
}
