"""What can be broken in a host, one verb each, and how it is fixed. Every fault is real to the other machines."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence

from lab import cgroups, gpu_faults, network, shaping
from lab import lab as labs
from lab.fault_kind import Fault, Settings, command, on_host
from lab.host import Host
from lab.lab import Lab
from lab.profile import PASSWORD, USER
from lab.shell import LabError, outcome, run


def settings(fault: str, words: Sequence[str]) -> Settings:
    """key=value words over the fault's defaults, with the defaults' types."""
    chosen = dict(FAULTS[fault].defaults)
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in chosen:
            known = " ".join(f"{key}=…" for key in chosen) or "no settings"
            raise LabError(f"fault {fault} takes {known}, not '{word}'", code=2)
        try:
            chosen[key] = type(chosen[key])(value)
        except ValueError:
            raise LabError(f"fault {fault}: {key} must be a number, not '{value}'", code=2) from None
    return chosen


def inject(lab: Lab, host: Host, name: str, chosen: Settings | None = None) -> str:
    fault = FAULTS[name]
    known = _remembered(host)
    if name in known:
        raise LabError(f"{host.name} has {name} already; fix it first: python -m lab fix {name} {host.name}", code=2)
    used = dict(fault.defaults) | (chosen or {})
    used |= fault.inject(lab, host, used) or {}
    if fault.fix:
        _remember(lab.host(host.name), known | {name: used})
    return f"{host.name}: {fault.meaning}" + (f"   fix: python -m lab fix {name} {host.name}" if fault.fix else "")


def fix(lab: Lab, host: Host, name: str) -> str:
    fault, known = FAULTS[name], _remembered(host)
    if fault.fix is None or name not in known:
        raise LabError(f"{host.name} has no {name} to fix ({', '.join(known) or 'nothing is broken'})", code=2)
    fault.fix(lab, host, known.pop(name))
    _remember(host, known)
    return f"{host.name}: {name} fixed"


def injected(host: Host) -> list[str]:
    return list(_remembered(host))


def _remembered(host: Host) -> dict[str, Settings]:
    file = host.folder / "faults.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _remember(host: Host, known: dict[str, Settings]) -> None:
    (host.folder / "faults.json").write_text(json.dumps(known))


# -- power ---------------------------------------------------------------------------------------------------


def _reboot(_: Lab, host: Host, __: Settings) -> None:
    before = host.leader
    host.outcome("systemctl", "reboot")
    labs.wait_until(lambda: _leader(host) not in (None, before), f"{host.name} did not go down for its reboot")
    host.wait_until_up()


def _leader(host: Host) -> int | None:
    with contextlib.suppress(LabError):
        return host.leader
    return None


def _suspend(host: Host) -> None:
    """A sleeping machine answers nothing, not even the kernel's part of a connection: its NIC is off."""
    cgroups.freeze(host.cgroup, True)
    network.set_cable(host.cable, plugged=False)


def _resume(host: Host) -> None:
    network.set_cable(host.cable, plugged=True)
    cgroups.freeze(host.cgroup, False)


# -- network -------------------------------------------------------------------------------------------------


def _slow_link(_: Lab, host: Host, chosen: Settings) -> Settings:
    before = shaping.rate_mbit(host.cable)
    shaping.set_rate(host.cable, float(chosen["rate_mbit"]))
    return {"before": before or 0.0}


def _link_back(_: Lab, host: Host, chosen: Settings) -> None:
    shaping.set_rate(host.cable, float(chosen["before"]) or None)


def _delay(lab: Lab, host: Host, chosen: Settings) -> None:
    shaping.set_delay(lab.place, host.cable, *(float(chosen[key]) for key in ("delay_ms", "jitter_ms", "loss_percent")))


def _delay_gone(lab: Lab, host: Host, _: Settings) -> None:
    shaping.clear_delay(lab.place, host.cable)


def _rename_nic(_: Lab, host: Host, chosen: Settings) -> Settings:
    before = host.cable.nic
    _rename(host, before, str(chosen["to"]))
    return {"before": before}


def _name_back(_: Lab, host: Host, chosen: Settings) -> None:
    _rename(host, str(chosen["to"]), str(chosen["before"]))


def _rename(host: Host, old: str, new: str) -> None:
    """Names change between two boots: a new NIC moves the others on the bus."""
    host.power_off()
    network.batch(host.namespace, f"link set {old} down", f"link set {old} name {new}")
    host.restore_power()
    # Its netplan file may know the NIC by the old name only; then it has no address to be asked at.
    labs.wait_until(lambda: _serves_ssh(host), f"{host.name} did not boot")


def _serves_ssh(host: Host) -> bool:
    return _leader(host) is not None and host.outcome("systemctl", "is-active", "--quiet", "ssh").returncode == 0


# -- what runs on it -----------------------------------------------------------------------------------------


def _throttle(_: Lab, host: Host, chosen: Settings) -> Settings:
    before = cgroups.quota_percent(host.cgroup)
    cgroups.quota(host.cgroup, float(chosen["percent"]))
    return {"before": before or 0.0}


def _full_speed(_: Lab, host: Host, chosen: Settings) -> None:
    cgroups.quota(host.cgroup, float(chosen["before"]) or None)


BALLAST = "lab-ballast"


def _fill_disk(_: Lab, host: Host, chosen: Settings) -> None:
    """Reserved, not written: the host's disk is full, the real one does not notice."""
    ballast, leave = host.disk.mounted_image / BALLAST, int(float(chosen["leave_mb"]) * 1e6)
    # The file system needs some of the room for its own notes, so the last steps go by halves.
    length = _free_bytes(host) - leave
    taken = 0
    while length >= 4096:
        if outcome("fallocate", "--offset", str(taken), "--length", str(length), ballast).returncode == 0:
            taken += length
            length = _free_bytes(host) - leave
        else:
            run("truncate", "--size", str(taken), ballast)
            length //= 2


def _free_bytes(host: Host) -> int:
    now = os.statvfs(host.disk.mounted_image)
    return now.f_bavail * now.f_frsize


def _reinstall(lab: Lab, host: Host, _: Settings) -> None:
    """A new system at the address that it has now: what SSH sees is a changed host key."""
    now = network.addresses(host.namespace)
    labs.reset(lab, [host.name], address=now[0] if now else None)


HOLD_LOCK = (
    "import fcntl, time; files = [open('/var/lib/dpkg/' + name, 'w') for name in ('lock-frontend', 'lock')];"
    "[fcntl.lockf(file, fcntl.LOCK_EX) for file in files]; print('held', flush=True); time.sleep(float('{seconds}'))"
)
UPGRADER = "lab-unattended-upgrade"


def _hold_apt(_: Lab, host: Host, chosen: Settings) -> None:
    code = HOLD_LOCK.format(seconds=chosen["seconds"])
    host.run("systemd-run", "--quiet", "--collect", f"--unit={UPGRADER}", "python3", "-c", code)
    labs.wait_until(lambda: _apt_locked(host), f"{host.name}: the apt lock was not taken")


def _apt_locked(host: Host) -> bool:
    test = "import fcntl; fcntl.lockf(open('/var/lib/dpkg/lock-frontend', 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    return host.outcome("python3", "-c", test).returncode != 0


# -- all of them ---------------------------------------------------------------------------------------------

FAULTS: dict[str, Fault] = {
    "power-cut": Fault(
        meaning="the plug is pulled, no closing packet is sent", inject=on_host(Host.power_cut), fix=on_host(Host.boot)
    ),
    "reboot": Fault(meaning="it restarts in order", inject=_reboot, fix=None),
    "suspend": Fault(
        meaning="it sleeps: no program runs, the network card is off", inject=on_host(_suspend), fix=on_host(_resume)
    ),
    "freeze": Fault(
        meaning="it hangs: the kernel answers, programs do not",
        inject=on_host(lambda host: cgroups.freeze(host.cgroup, True)),
        fix=on_host(lambda host: cgroups.freeze(host.cgroup, False)),
    ),
    "cable-pull": Fault(
        meaning="its network cable is out",
        inject=on_host(lambda host: network.set_cable(host.cable, plugged=False)),
        fix=on_host(lambda host: network.set_cable(host.cable, plugged=True)),
    ),
    "slow-link": Fault(
        meaning="its cable runs at a lower speed", inject=_slow_link, fix=_link_back, defaults={"rate_mbit": 20.0}
    ),
    "delay": Fault(
        meaning="packets to and from it come late, unevenly or not at all",
        inject=_delay,
        fix=_delay_gone,
        defaults={"delay_ms": 20.0, "jitter_ms": 0.0, "loss_percent": 0.0},
    ),
    "nic-renamed": Fault(
        meaning="its network card has another name after a reboot",
        inject=_rename_nic,
        fix=_name_back,
        defaults={"to": "enp99s0"},
    ),
    "cpu-throttle": Fault(
        meaning="it computes slower than it should", inject=_throttle, fix=_full_speed, defaults={"percent": 10.0}
    ),
    "disk-full": Fault(
        meaning="its disk has no room left",
        inject=_fill_disk,
        fix=on_host(lambda host: (host.disk.mounted_image / BALLAST).unlink(missing_ok=True)),
        defaults={"leave_mb": 0.0},
    ),
    "reinstalled": Fault(meaning="it was reinstalled: fresh host keys", inject=_reinstall, fix=None),
    "apt-lock": Fault(
        meaning="an unattended upgrade holds the package lock",
        inject=_hold_apt,
        fix=command("systemctl", "stop", UPGRADER, check=False),
        defaults={"seconds": 600.0},
    ),
    "wrong-password": Fault(
        meaning="the user's password is another one",
        inject=command("chpasswd", stdin=f"{USER}:changed-{PASSWORD}"),
        fix=command("chpasswd", stdin=f"{USER}:{PASSWORD}"),
    ),
    "no-sudo": Fault(
        meaning="the user may log in but not become root",
        inject=command("gpasswd", "--delete", USER, "sudo"),
        fix=command("gpasswd", "--add", USER, "sudo"),
    ),
    "loopback-name": Fault(
        meaning="/etc/hosts gives its own name the address 127.0.1.1",
        inject=command(
            "sh", "-c", 'cp -p /etc/hosts /etc/hosts.lab && printf "127.0.1.1\\t%s\\n" "$(hostname)" >>/etc/hosts'
        ),
        fix=command("mv", "/etc/hosts.lab", "/etc/hosts"),
    ),
    **gpu_faults.FAULTS,
}
