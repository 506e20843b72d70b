#!/usr/bin/python
# MIT License, see LICENSE
"""Changes a node's network as a transaction: unless it is confirmed from outside, the node takes it back by itself."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import subprocess
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.motley import ifupdown, lan
from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.files import difference
from ansible.module_utils.motley.lan import ROLLBACK as UNIT
from ansible.module_utils.motley.resolving import a_name, resolves
from ansible.module_utils.motley.undo_record import Before, printable, read_text, write_file

DOCUMENTATION = r"""
module: netplan_change
short_description: Netplan files with an armed rollback
author: Motley
description:
  - Writes netplan files and applies them, after it has armed a timer that gives the old ones back.
  - The change stays only if O(step=confirm) comes in time and finds address, route and gateway right.
  - Records what was there first, for M(node_undo).
options: {
  "step": {"type": "str", "choices": ["begin", "confirm", "back"], "default": "begin",
    "description": [
      "C(begin) writes the files, arms the rollback and applies them a second later.",
      "C(confirm) looks whether address, route and gateway are as requested and names resolve where they did.",
      "Then it disarms the rollback, else it goes back at once.",
      "C(back) goes back at once and returns in gone_back whether that is done."
    ]},
  "mac": {"type": "str", "required": true, "description": "The NIC"},
  "nic": {"type": "str", "default": "", "description": "Its name now: a VLAN or a bridge has the MAC of its NIC"},
  "address": {"type": "str", "required": true,
    "description": "ADDRESS/PREFIX it is to have; empty: whatever the files say"},
  "gateway": {"type": "str", "required": true,
    "description": "Must answer before the change is confirmed; may be empty"},
  "manager": {"type": "bool", "default": false, "description": "Whether NetworkManager has the NIC"},
  "files": {"type": "str", "default": "", "no_log": true,
    "description": "JSON: path to content (it may hold Wi-Fi passwords); null removes"},
  "adopts": {"type": "bool", "default": false,
    "description": "Whether the NIC is taken out of ifupdown's files as well"},
  "back_to": {"type": "str", "default": "", "description": "Instead of files: as this phase found them"},
  "leaving": {"type": "list", "elements": "str", "default": [],
    "description": "MACs that may still have the address as they move"},
  "rollback_s": {"type": "float",
    "description":
      "Seconds until an unconfirmed change is taken back (motley_static_ip_rollback_s); O(step=begin) needs it"},
  "reached_at": {"type": "str", "default": "", "description": "Where the node answered before, which it leaves"},
  "moved": {"type": "str", "default": "", "description": "OLD → NEW, for the sentence at the end"},
  "waited_s": {"type": "float", "default": 0,
    "description": "How long the controller needed to reach it, for that sentence"},
  "phase": {"type": "str", "default": "static_ip", "description": "Where the state before is kept; empty: it is not"}
}
"""
EXAMPLES = """
- name: Give it its address, and go back after a minute unless that is confirmed
  netplan_change:
    step: begin
    mac: 3c:7c:3f:00:00:01
    nic: enp3s0
    address: 192.168.1.100/24
    gateway: 192.168.1.1
    manager: false
    files: "{{ planned.files | to_json }}"
    rollback_s: 60
    reached_at: 192.168.1.23
    leaving: []
    phase: static_ip
  become: true
"""
RETURN = r"""
armed_s: {type: float, returned: when files were written, description: Seconds until the change is taken back}
gone_back: {type: bool, returned: with O(step=back), description: Whether the old settings are applied}
"""
FOLDER = Path("/var/lib/motley/rollback")
RESTORE = FOLDER / "restore.sh"
BEGUN = FOLDER / "begun"
"""The way back is under way: nothing stops it any more."""
APPLIED = FOLDER / "applied"
RESOLVES = FOLDER / "resolves"
LAN = f"python3 {FOLDER}/lan.py"
APPLY_UNIT = "motley-network-apply"
NOT_LOADED = 5
"""What systemctl says of a timer that has gone off."""
# A timer does not outlive a power cut; this does, as long as the change is unconfirmed.
AT_BOOT = Path(f"/etc/systemd/system/{UNIT}-at-boot.service")
AT_BOOT_WANTED = AT_BOOT.parent / "multi-user.target.wants" / AT_BOOT.name
AT_BOOT_TEXT = """[Unit]
Description=Motley: takes back a change of the network that was not confirmed before the machine went down
After=network.target

[Service]
Type=oneshot
ExecStart=/bin/sh /var/lib/motley/rollback/restore.sh
"""


Texts = dict[Path, str | None]
"""What each file holds, or is to hold; None: it is not there."""


def main() -> None:
    module = module_of(DOCUMENTATION, required_if=[("step", "begin", ["rollback_s"])])
    STEPS[module.params["step"]](module)


def begin(module: AnsibleModule) -> None:
    params = module.params
    nic = lan.nic_by_mac(params["mac"], params["nic"])
    # The files come as one text: its mask hides it whole, and no word of the diff, which has a mask of its own.
    files = Before(params["back_to"]).contents() if params["back_to"] else json.loads(params["files"] or "{}")
    if params["adopts"]:
        files |= ifupdown.without(nic)
    wanted = {Path(path): text for path, text in files.items()}
    old = {path: read_text(path) for path in wanted}
    different = [path for path in wanted if old[path] != wanted[path]]
    if unconfirmed():
        if module.check_mode:
            module.exit_json(changed=True)
        settle_unconfirmed(module, wanted, same=not different)
    if not different and stands(nic, params):
        module.exit_json(changed=False)
    diff = [difference(path, shown(old[path]), shown(wanted[path])) for path in different]
    if module.check_mode:
        module.exit_json(changed=True, diff=diff)
    refuse_taken(module, nic, params)
    before = Before(params["phase"]) if params["phase"] else None
    if before:
        before.remember_address(params["reached_at"])
        for path in wanted:
            before.keep(path)
    apply = write(module, nic, old, wanted)
    if before:
        for path in wanted:
            before.wrote(path)
    # After our answer has left the machine.
    run_later(APPLY_UNIT, 1, "sh", "-c", apply)
    module.exit_json(changed=True, diff=diff, armed_s=params["rollback_s"])


def settle_unconfirmed(module: AnsibleModule, wanted: Texts, *, same: bool) -> None:
    """A change whose controller was stopped: the same one goes on, an undo goes back, another begins anew."""
    params = module.params
    in_time = stops_timer()
    if same and in_time:
        arm(params["rollback_s"])
        if params["phase"]:
            for path in wanted:
                Before(params["phase"]).wrote(path)
        module.exit_json(changed=True, armed_s=params["rollback_s"])
    if in_time:
        go_back()
    if params["back_to"]:
        module.exit_json(changed=True, armed_s=params["rollback_s"])
    # What is asked for was planned from what goes now.
    module.fail_json(
        msg="an earlier change of the network, which nobody has confirmed, is being taken back\n"
        "fix: run again in half a minute"
    )


def write(module: AnsibleModule, nic: str, old: Texts, wanted: Texts) -> str:
    """All files, once the rollback is armed, or none; returns what applies them."""
    params = module.params
    stop_announcing()
    FOLDER.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_file(RESOLVES, a_name() if params["address"] else "", 0o600, (0, 0))
    apply, back = apply_commands(params, nic, old, wanted)
    save_way_back(old, back)
    arm(params["rollback_s"])
    refused = write_and_generate(wanted)
    if refused:
        put(old)
        stops_timer()
        disarm()
        module.fail_json(msg=f"{refused}\nnothing was applied, all files are as they were")
    return apply


def write_and_generate(wanted: Texts) -> str:
    """Why the files could not be written, or netplan will not have them; empty when all is well."""
    try:
        put(wanted)
    except OSError as error:
        return str(error)
    done = subprocess.run(["netplan", "generate"], capture_output=True, text=True, check=False)
    said = done.stderr.strip()
    marked = re.search(r"(?m)^\S+\.yaml:\d+:\d+: .*", said)  # what stands before it are warnings
    return f"netplan refuses the new settings: {marked[0] if marked else said}" if done.returncode else ""


def shown(text: str | None) -> str:
    """The text for a diff that may end in a log: without passwords of Wi-Fi, in netplan's files or ifupdown's."""
    return re.sub(r"(password|passphrase|psk)(['\"]?[ \t]*[: \t][ \t]*)\S.*", r"\1\2********", printable(text))


def stands(nic: str, params: lan.WantedAddress) -> bool:
    if not params["address"]:
        return True
    there = lan.carries(nic, params["address"], params["reached_at"])
    return there and (not params["gateway"] or lan.gateway_of(nic) == params["gateway"])


def refuse_taken(module: AnsibleModule, nic: str, params: lan.WantedAddress) -> None:
    """An address that another machine uses would cut off both."""
    address = params["address"].split("/")[0]
    if not address or lan.carries(nic, params["address"]):
        return
    owner = lan.who_has(nic, address)
    if owner and owner.lower() not in [mac.lower() for mac in params["leaving"]]:
        fix = "give this node another motley_address, or that machine another address; then run again"
        module.fail_json(
            msg=f"{address} is taken: the machine with MAC {owner} has it\nnothing was changed\nfix: {fix}"
        )


def unconfirmed() -> bool:
    units = [f"{name}.{kind}" for name in (UNIT, f"{UNIT}-now") for kind in ("timer", "service")]
    return subprocess.run(["systemctl", "is-active", "--quiet", *units], check=False).returncode == 0


def stop_announcing() -> None:
    """A change confirmed seconds ago may still announce its address, under the name that this one needs."""
    subprocess.run(
        ["systemctl", "stop", f"{APPLY_UNIT}.timer", f"{APPLY_UNIT}.service"], check=False, capture_output=True
    )


def apply_commands(params: lan.WantedAddress, nic: str, old: Texts, wanted: Texts) -> tuple[str, str]:
    """The commands to the new settings, and back from them."""
    device = f"{shlex.quote(params['mac'])} {shlex.quote(nic)}"
    settings = [has_nic(old, nic), has_nic(wanted, nic)]
    if bool(settings[0]) == bool(settings[1]):
        return (by_netplan(device, manager=params["manager"]),) * 2
    copies = []
    for number, text in enumerate(settings[0] or settings[1]):
        copies.append(str(FOLDER / f"ifupdown-{number}"))
        write_file(Path(copies[-1]), text, 0o600, (0, 0))
    leave = f"{LAN} leave_ifupdown {device} {' '.join(copies)}; {by_netplan(device, manager=False)}"
    join = f"netplan apply; {LAN} join_ifupdown {device}; touch {APPLIED}; {LAN} announce {device}"
    return (leave, join) if settings[0] else (join, leave)


def has_nic(files: Texts, nic: str) -> list[str]:
    """The texts of ifupdown's files in which the NIC has settings."""
    texts = [text for path, text in files.items() if path.is_relative_to("/etc/network") and text]
    return [text for text in texts if any(name == nic for name, _ in ifupdown.stanzas_of(text))]


def by_netplan(device: str, *, manager: bool) -> str:
    """netplan restarts NetworkManager, which then keeps what a NIC has, unless the NIC was let go before."""
    before, after = (f"{LAN} let_go {device}; ", f"{LAN} take_up {device}; ") if manager else ("", "")
    settle = "" if manager else f"{LAN} settle {device}; "
    return f"{before}netplan apply; {after}touch {APPLIED}; {settle}{LAN} announce {device}"


def save_way_back(old: Texts, apply: str) -> None:
    """A plain script that the machine runs by itself, whatever becomes of the controller."""
    lines = ["#!/bin/sh", "# Written by Motley: puts the network back as it was before an unconfirmed change."]
    lines.append(f"touch {BEGUN}; rm -f {APPLIED}")
    for number, (path, text) in enumerate(old.items()):
        if text is None:
            lines.append(f"rm -f {shlex.quote(str(path))}")
            continue
        copy = FOLDER / f"{number:02d}-{path.name}"
        write_file(copy, text, path.stat().st_mode & 0o777, (0, 0))
        lines.append(f"cp -p {shlex.quote(str(copy))} {shlex.quote(str(path))}")
    lines += [apply, f"rm -f {AT_BOOT_WANTED} {AT_BOOT}"]
    for mark in (APPLIED, BEGUN):
        mark.unlink(missing_ok=True)
    write_file(FOLDER / "lan.py", inspect.getsource(lan), 0o600, (0, 0))
    write_file(RESTORE, "\n".join(lines) + "\n", 0o700, (0, 0))


def put(files: Texts) -> None:
    for path, text in files.items():
        if text is None:
            path.unlink(missing_ok=True)
        else:
            usual = path.stat().st_mode & 0o777 if path.exists() else 0o644
            write_file(path, text, 0o600 if path.match("/etc/netplan/*") else usual, (0, 0))


def arm(seconds: float) -> None:
    """Before anything is written: from here on the machine goes back by itself, also after a power cut."""
    write_file(AT_BOOT, AT_BOOT_TEXT, 0o644, (0, 0))
    if not AT_BOOT_WANTED.is_symlink():
        AT_BOOT_WANTED.symlink_to(AT_BOOT)
    run_later(UNIT, seconds, "/bin/sh", str(RESTORE))  # /var may be noexec


def stops_timer() -> bool:
    """False: too late, it is going back already."""
    stopped = subprocess.run(["systemctl", "stop", f"{UNIT}.timer"], check=False, capture_output=True)
    if stopped.returncode != NOT_LOADED:
        stopped.check_returncode()
    return not BEGUN.exists()


def disarm() -> None:
    """Nothing takes the change back any more; not before all is proven, or all files are as they were."""
    AT_BOOT_WANTED.unlink(missing_ok=True)
    AT_BOOT.unlink(missing_ok=True)


def run_later(unit: str, seconds: float, *command: str) -> None:
    timer = [
        "systemd-run",
        "--collect",
        f"--unit={unit}",
        f"--on-active={seconds}",
        "--timer-property=AccuracySec=100ms",
    ]
    subprocess.run([*timer, *command], check=True, capture_output=True)


def confirm(module: AnsibleModule) -> None:
    params = module.params
    if module.check_mode:
        module.exit_json(changed=False)
    reason = "" if wait_until_applied() else "the new settings were not applied in time"
    reason = reason or wait_until_right(params)
    if not stops_timer() and not params["back_to"]:
        module.fail_json(msg="it went back before the change could be confirmed")
    if reason:
        go_back()
        module.fail_json(msg=reason)
    disarm()
    gateway = " gateway answers," if params["gateway"] else ""
    names = " names resolve," if read_text(RESOLVES) else ""
    say = f"{params['moved']}: reached there after {params['waited_s']:.1f} s,{gateway}{names} rollback disarmed"
    module.exit_json(changed=True, motley_say=say)


def go_back() -> None:
    APPLIED.unlink(missing_ok=True)
    run_later(UNIT + "-now", 1, "/bin/sh", str(RESTORE))
    BEGUN.touch()  # whoever asks for it within that second does not ask a second time


def back(module: AnsibleModule) -> None:
    """A node that is reached at its old address may not have left it yet, with the new settings still in its files."""
    if not module.check_mode and AT_BOOT.exists() and stops_timer():
        go_back()
    module.exit_json(changed=False, gone_back=wait_until_applied())


def wait_until_applied(limit_s: float = 60) -> bool:
    """A node whose address stays the same answers before anything has happened: that proves nothing yet."""
    end = time.monotonic() + limit_s
    while not APPLIED.exists() and time.monotonic() < end:
        time.sleep(0.2)
    return APPLIED.exists()


def wait_until_right(params: lan.WantedAddress, limit_s: float = 8) -> str:
    """Why the new settings are not good; empty when they are."""
    end = time.monotonic() + limit_s
    while True:
        reason = fault_of(params)
        if not reason or time.monotonic() > end:
            return reason
        time.sleep(0.3)


def fault_of(params: lan.WantedAddress) -> str:
    nic = lan.nic_by_mac(params["mac"], params["nic"])
    address = params["address"].split("/")[0]
    if not address:
        return ""
    left = params["reached_at"]
    for leaves, wrong in (("", f"does not have {params['address']}"), (left, f"has {left} still")):
        if not lan.carries(nic, params["address"], leaves):
            return f"{nic} {wrong} after the change"
    if params["gateway"] and lan.gateway_of(nic) != params["gateway"]:
        return f"{nic} has no default route via {params['gateway']} after the change"
    if params["gateway"] and not lan.who_has(nic, params["gateway"], sender=address, timeout_s=2):
        return f"nobody answers at the gateway {params['gateway']}"
    name = read_text(RESOLVES)
    if name and not resolves(name):
        return f"names do not resolve after the change ({name} did before): set motley_dns"
    return ""


STEPS = {"begin": begin, "confirm": confirm, "back": back}

if __name__ == "__main__":
    main()
