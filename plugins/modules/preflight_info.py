#!/usr/bin/python
# MIT License, see LICENSE
"""Everything the roles want to know about a node, looked at once; fails with all that blocks it."""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import pwd
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TypedDict

from ansible.module_utils.motley import ifupdown, listening_ports
from ansible.module_utils.motley.apt_lock import holder
from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.files import read
from ansible.module_utils.motley.lan import ROLLBACK, ip, lower
from ansible.module_utils.motley.node_network import name_servers, netplan_files, resolv_conf, wifi_in_use
from ansible.module_utils.motley.preflight import ClusterFolder, Judged, judge
from ansible.module_utils.motley.undo_record import as_its_person

DOCUMENTATION = r"""
module: preflight_info
short_description: Look at a node once, for all phases
author: Motley
description:
  - Reads system, Python, network interfaces, netplan files, free space and services; changes nothing.
  - With O(strict=true) it fails with all that blocks a bootstrap, each with its fix.
options: {
  "user": {"type": "str", "required": true, "description": "The login user, whose the cluster's folder is"},
  "folder": {"type": "str", "default": "~/ai-cluster", "description": "The cluster's folder"},
  "disk_gb": {"type": "float", "default": 0, "description": "Least free space where that folder lies, or will"},
  "strict": {"type": "bool", "default": true, "description": "Whether findings are a failure"},
  "key": {"type": "str", "default": "", "description": "Name of the user's key pair that Motley made, in ~/.ssh"},
  "apt_wait_s": {"type": "float", "default": 0, "description": "How long to wait for apt's locks"}
}
"""
EXAMPLES = """
- name: Look at the machine, whatever blocks it
  preflight_info:
    user: "{{ ansible_user }}"
    strict: false
  become: true
  register: seen
"""
RETURN = r"""
node: {type: dict, returned: success, description: The facts by name}
clock: {type: list, elements: float, returned: success, description: The node's clock at the beginning and at the end}
findings: {type: list, elements: dict, returned: failure, description: "what and fix of each"}
"""
ETHTOOL_PERMANENT_ADDRESS, SIOCETHTOOL = 0x20, 0x8946


def main() -> None:
    module = module_of(DOCUMENTATION)
    wants = module.params
    went_back_s = wait_for_way_back()
    began = time.time()
    report = look(wants["user"], wants["key"], wants["folder"])
    report["apt_lock"], report["apt_waited_s"] = wait_for_apt(wants["apt_wait_s"])
    findings = judge(report, wants["disk_gb"]) if wants["strict"] else []
    if findings:
        lines = [f"{finding['what']}\nfix: {finding['fix']}" for finding in findings]
        module.fail_json(msg="\n".join(lines), findings=findings)
    parts = [report["os"].get("PRETTY_NAME", "")]
    if went_back_s:
        parts.append(f"waited {went_back_s:.0f} s for the way back of an earlier change of its network")
    if report["apt_waited_s"] >= 1:
        parts.append(f"waited {report['apt_waited_s']:.0f} s for apt")
    module.exit_json(changed=False, node=report, clock=[began, time.time()], motley_say=", ".join(parts))


class Nic(TypedDict):
    name: str
    mac: str
    permanent_mac: str
    lower: list[str]
    wireless: bool
    wake_on: str
    network: dict[str, str]
    """The connection in use, of Wi-Fi."""
    addresses: list[str]
    gateway: str


class Report(Judged, listening_ports.Listening):
    machine: str
    home: str
    own_key: str
    hostname: str
    nics: list[Nic]
    dns: dict[str, dict[str, list[str]]]
    resolv_conf: str
    netplan: dict[str, str]
    ifupdown: dict[str, list[ifupdown.Stanza]]
    has_netplan: bool
    network_manager: bool
    cloud_init: bool
    nft: bool
    ufw: bool
    firewalld: bool
    time_service: str


def look(user: str, key: str = "", folder: str = "~/ai-cluster") -> Report:
    home = pwd.getpwnam(user).pw_dir
    cluster = cluster_folder(user, folder)
    places = {"home": cluster["at"], "system": "/var"}
    found = nics()
    return {
        "os": os_release(),
        "python": list(sys.version_info[:3]),
        "machine": platform.machine(),
        "wsl": "microsoft" in platform.release().lower(),
        "proxmox": Path("/etc/pve").is_dir(),
        "container": output("systemd-detect-virt", "--container"),
        "home": home,
        "own_key": own_key(Path(home, ".ssh", f"{key}.pub")) if key else "",
        "hostname": socket.gethostname(),
        "cluster": cluster,
        "places": places,
        "free_gb": {name: shutil.disk_usage(path).free / 1e9 for name, path in places.items()},
        "nics": found,
        "dns": {nic["name"]: name_servers(nic["name"]) for nic in found if nic["addresses"]},
        "resolv_conf": resolv_conf(),
        "netplan": netplan_files(),
        "ifupdown": ifupdown.stanzas() if shutil.which("ifup", path="/usr/sbin:/sbin") else {},
        "has_netplan": shutil.which("netplan") is not None,
        "network_manager": unit_active("NetworkManager.service"),
        "cloud_init": Path("/etc/cloud").is_dir(),
        "nft": shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin") is not None,
        "ufw": "ENABLED=yes" in read(Path("/etc/ufw/ufw.conf")),
        "firewalld": unit_active("firewalld.service"),
        **listening_ports.look(),
        "time_service": time_service(),
        "apt_lock": "",
        "apt_waited_s": 0.0,
    }


def cluster_folder(user: str, folder: str) -> ClusterFolder:
    """The nearest folder that is there, and whether the user can work there: bootstrap makes the rest of the way."""
    who = pwd.getpwnam(user)
    path = Path(folder.replace("~", who.pw_dir, 1))
    nearest = next(place for place in [path, *path.parents] if os.path.exists(place))  # noqa: PTH110 - NFS may refuse root
    own, at = nearest == path or nearest.is_relative_to(who.pw_dir), str(nearest)
    test = ["test", "-d", at, "-a", "-x", at, *(["-a", "-O", at, "-a", "-w", at] if own else [])]
    groups = os.getgrouplist(user, who.pw_gid)
    asked = subprocess.run(test, user=who.pw_uid, group=who.pw_gid, extra_groups=groups, check=False)
    filesystem = subprocess.run(["stat", "-f", "-c", "%T", at], capture_output=True, text=True, check=False).stdout
    return {"path": str(path), "at": at, "open": asked.returncode == 0, "filesystem": filesystem.strip()}


def own_key(path: Path) -> str:
    with as_its_person(path):
        return read(path)


def os_release() -> dict[str, str]:
    pairs = (line.split("=", 1) for line in read(Path("/etc/os-release")).splitlines() if "=" in line)
    return {key: value.strip('"') for key, value in pairs}


def nics() -> list[Nic]:
    """Network cards, and what else the kernel has of their kind, with what they carry now."""
    cards: list[Nic] = []
    routes = ip("-4", "route", "show", "default")
    for link in ip("address", "show"):
        name = link["ifname"]
        if read(Path(f"/sys/class/net/{name}/type")) != "1":
            continue  # not Ethernet
        addresses = [f"{a['local']}/{a['prefixlen']}" for a in link.get("addr_info", []) if a["family"] == "inet"]
        wireless = Path(f"/sys/class/net/{name}/wireless").exists()
        cards.append(
            {
                "name": name,
                "mac": read(Path(f"/sys/class/net/{name}/address")) or link.get("address", ""),
                "permanent_mac": permanent_mac(name),
                "lower": lower(name),
                "wireless": wireless,
                "wake_on": "" if wireless else wake_on(name),
                "network": wifi_in_use(name) if wireless else {"uuid": "", "ssid": ""},
                "addresses": addresses,
                "gateway": next((r.get("gateway", "") for r in routes if r.get("dev") == name), ""),
            }
        )
    return cards


def permanent_mac(name: str) -> str:
    """The burnt-in address; empty where a NIC has none (bridges, simulated NICs)."""
    buffer = bytearray(struct.pack("II", ETHTOOL_PERMANENT_ADDRESS, 32) + bytes(32))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            where = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
            fcntl.ioctl(any_socket.fileno(), SIOCETHTOOL, struct.pack("16sP", name.encode(), where))
        except OSError:
            return ""
    mac = bytes(buffer[8:14])
    return ":".join(f"{byte:02x}" for byte in mac) if any(mac) else ""


def wake_on(name: str) -> str:
    """armed or disarmed: whether a magic packet wakes it; empty where it cannot, or where no ethtool tells."""
    try:
        told = subprocess.run(["ethtool", name], capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""
    can, now = (re.search(rf"(?m)^\s*{key}: (\w+)", told) for key in ("Supports Wake-on", "Wake-on"))
    return ("armed" if now and "g" in now[1] else "disarmed") if can and "g" in can[1] else ""


def unit_active(*units: str) -> bool:
    """One of them."""
    try:
        return subprocess.run(["systemctl", "is-active", "--quiet", *units], check=False).returncode == 0
    except FileNotFoundError:
        return False


def time_service() -> str:
    """The unit that keeps this machine's time; empty where nothing does or could."""
    units = ["chrony.service", "ntpsec.service", "ntp.service", *time_daemons(), "systemd-timesyncd.service"]
    listed = output("systemctl", "list-unit-files", "--no-legend", "--plain", *units).split()
    return next((unit for unit in units if unit in listed), "")


def time_daemons() -> list[str]:
    """The units of openntpd, ntpd-rs and what else may come: apt would take them away for another."""
    told = output("dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Provides}\\n").splitlines()
    rows = [line.replace(",", " ").split() for line in told]
    return [f"{row[1]}.service" for row in rows if row[0] == "installed" and "time-daemon" in row[2:]]


def output(*command: str) -> str:
    """Nothing where the system has no such program; whether Motley serves that system is judged later."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def wait_for_way_back(limit_s: float = 60) -> float:
    """A change of the network that nobody confirmed: what is seen before it is taken back is not what will be."""
    units = [f"{ROLLBACK}.service", f"{ROLLBACK}-now.service", f"{ROLLBACK}-now.timer"]
    began = time.monotonic()
    if not unit_active(*units):
        return 0.0
    while unit_active(*units) and time.monotonic() - began < limit_s:
        time.sleep(0.3)
    return time.monotonic() - began


def wait_for_apt(limit_s: float) -> tuple[str, float]:
    """Waits for apt; returns who holds its locks at the end, and how long we waited."""
    start = time.monotonic()
    while True:
        found, waited = holder(), time.monotonic() - start
        if not found or waited >= limit_s:
            return found, waited
        time.sleep(1)


if __name__ == "__main__":
    main()
