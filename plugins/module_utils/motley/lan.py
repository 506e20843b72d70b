"""Small questions to the LAN and to the kernel about it, with nothing installed for them. Runs on a node as root."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TypedDict

ETH_P_ARP = 0x0806
BROADCAST = b"\xff" * 6
NET = Path("/sys/class/net")
RESOLV_CONF = Path("/etc/resolv.conf")
ROLLBACK = "motley-network-rollback"
"""The units that take an unconfirmed change of the network back."""
NETWORKD = "systemd-networkd.service"
WIFI = Path("/run/motley-wifi")
NOBODY = "0.0.0.0"  # noqa: S104  the sender of a question that is only a probe


def nic_by_mac(mac: str, name: str = "", net: Path = NET) -> str:
    """The NIC with this MAC and name, for a VLAN or a bridge has its NIC's MAC; or, if renamed since, the NIC."""
    same = [path.parent.name for path in sorted(net.glob("*/address")) if _read(path).lower() == mac.lower()]
    if name in same:
        return name
    return min(same, key=lambda nic: len(lower(nic, net)), default="")


def lower(nic: str, net: Path = NET) -> list[str]:
    """What a VLAN, a bridge or a bond lies on; none for a NIC."""
    return sorted(path.name.removeprefix("lower_") for path in (net / nic).glob("lower_*"))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # it was pulled out meanwhile, or is down and has no carrier to report
        return ""


class InterfaceAddress(TypedDict, total=False):
    family: str
    local: str
    prefixlen: int


class Link(TypedDict, total=False):
    """An interface or a route, as `ip -json` shows it."""

    ifname: str
    address: str
    mtu: int
    addr_info: list[InterfaceAddress]
    dev: str
    gateway: str
    prefsrc: str


class WantedAddress(TypedDict):
    """The options that say what the NIC is to have."""

    mac: str
    nic: str
    address: str
    """With its prefix; empty where the NIC gets none."""
    gateway: str
    reached_at: str
    leaving: list[str]
    manager: bool


def ip(*arguments: str) -> list[Link]:
    done = subprocess.run(["ip", "-json", *arguments], capture_output=True, text=True, check=True)
    return [entry for entry in json.loads(done.stdout or "[]") if entry]


def carries(nic: str, address: str, left: str = "") -> bool:
    """Whether the NIC has this "address/prefix", and no more the one that it leaves; others may be its owner's."""
    addresses = [
        f"{a['local']}/{a['prefixlen']}" for link in ip("-4", "address", "show", "dev", nic) for a in link["addr_info"]
    ]
    return address in addresses and (left in address.split("/") or left not in [one.split("/")[0] for one in addresses])


def gateway_of(nic: str) -> str:
    return next((route.get("gateway", "") for route in ip("-4", "route", "show", "default", "dev", nic)), "")


def arp(nic: str, sender: str, target: str) -> bytes:
    """The frame that asks everybody who has `target`."""
    own = bytes.fromhex((NET / nic / "address").read_text().strip().replace(":", ""))
    head = BROADCAST + own + struct.pack("!H", ETH_P_ARP) + struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1)
    return head + own + socket.inet_aton(sender) + bytes(6) + socket.inet_aton(target)


def wire(nic: str) -> socket.socket:
    line = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ARP))
    line.bind((nic, 0))
    return line


def who_has(nic: str, address: str, sender: str = NOBODY, timeout_s: float = 1.5) -> str:
    """The MAC that answers for an address (ARP); empty when nobody does. Without a sender it disturbs nobody."""
    question = arp(nic, sender, address)
    with wire(nic) as line:
        end, asked = time.monotonic() + timeout_s, 0.0
        while (now := time.monotonic()) < end:
            if now - asked > 0.4:
                line.send(question)
                asked = now
            line.settimeout(max(0.01, min(0.4, end - now)))
            try:
                answer = line.recv(128)[14:42]
            except TimeoutError:
                continue
            if len(answer) == 28 and answer[14:18] == socket.inet_aton(address) and answer[8:14] != question[6:12]:
                return ":".join(f"{byte:02x}" for byte in answer[8:14])
    return ""


def announce(mac: str, name: str = "", seconds: float = 8) -> None:
    """Announce to all where our addresses are now: for a minute others remember who had them before (a swap)."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        nic = nic_by_mac(mac, name)
        for address in [a["local"] for link in ip("-4", "address", "show", "dev", nic) for a in link["addr_info"]]:
            with wire(nic) as line:
                line.send(arp(nic, address, address))
        time.sleep(0.5)


def settle(mac: str, name: str = "", patience_s: float = 5) -> None:
    """networkd sets a NIC up twice in a row after `netplan apply`. A lease that comes in between may be lost forever
    (seen with 252: "Removing DHCPv4 address (requesting)", and no address ever after); started again, it asks again."""
    nic, end = nic_by_mac(mac, name), time.monotonic() + patience_s
    while plugged_in(nic) and not any(link["addr_info"] for link in ip("-4", "address", "show", "dev", nic)):
        if time.monotonic() > end:
            subprocess.run(["systemctl", "restart", "systemd-networkd"], check=False)
            return
        time.sleep(0.2)


def plugged_in(nic: str) -> bool:
    return _read(NET / nic / "carrier") == "1"


def nmcli(*words: str) -> str:
    return subprocess.run(["nmcli", *words], capture_output=True, text=True, check=False).stdout.strip()


def let_go(mac: str, name: str = "") -> None:
    """NetworkManager's NIC is without settings then, as netplan does it for NICs that it knows by name only."""
    nic = nic_by_mac(mac, name)
    WIFI.write_text(nmcli("-g", "GENERAL.CON-UUID", "device", "show", nic) if (NET / nic / "wireless").exists() else "")
    nmcli("device", "disconnect", nic)


def take_up(mac: str, name: str = "") -> None:
    """Takes up a NIC that was let go: it is not by itself where netplan has not started NetworkManager again."""
    nic, wifi = nic_by_mac(mac, name), _read(WIFI)
    nmcli("connection", "reload")
    if not nmcli("-g", "GENERAL.STATE", "device", "show", nic).startswith("30 "):  # disconnected
        return
    if wifi:  # the network that it was in, of all that are saved
        nmcli("--wait", "0", "connection", "up", "uuid", wifi, "ifname", nic)
    else:
        nmcli("--wait", "0", "device", "connect", nic)


def leave_ifupdown(mac: str, name: str, *files: str) -> None:
    """Ends ifupdown's part in a NIC, by the settings that were its: a DHCP client too. Names resolve as before."""
    nic, kept = nic_by_mac(mac, name), RESOLV_CONF.read_bytes() if RESOLV_CONF.is_file() else b""
    for file in files:
        subprocess.run(["ifdown", "--force", "-i", file, nic], check=False)
    if kept and not RESOLV_CONF.is_symlink():  # a DHCP client takes its name servers with it
        RESOLV_CONF.write_bytes(kept)
    subprocess.run(["systemctl", "start", NETWORKD], check=False)


def join_ifupdown(mac: str, name: str) -> None:
    """Gives a NIC back to ifupdown, as it is after a start."""
    nic = nic_by_mac(mac, name)
    enabled = subprocess.run(["systemctl", "is-enabled", NETWORKD], capture_output=True, text=True, check=False)
    if enabled.stdout.strip() != "enabled":  # netplan alone had started it
        subprocess.run(["systemctl", "stop", "systemd-networkd.socket", NETWORKD], check=False)
    subprocess.run(["ip", "address", "flush", "dev", nic], check=False)
    subprocess.run(["ip", "link", "set", "dev", nic, "down"], check=False)
    conf = Path("/proc/sys/net/ipv6/conf")
    if (conf / nic / "accept_ra").exists():  # networkd listens to routers itself
        (conf / nic / "accept_ra").write_text((conf / "default/accept_ra").read_text())
    # In a unit of its own: a DHCP client is to live longer than what calls us.
    subprocess.run(["systemd-run", "--scope", "--quiet", "--collect", "ifup", "--force", nic], check=False)


STEPS = {step.__name__: step for step in (announce, settle, let_go, take_up, leave_ifupdown, join_ifupdown)}

if __name__ == "__main__":
    STEPS[sys.argv[1]](*sys.argv[2:])
