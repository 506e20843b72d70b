"""Small questions to the LAN and to the kernel about it, with nothing installed for them. Runs on a node as root."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

ETH_P_ARP = 0x0806
BROADCAST = b"\xff" * 6
NOBODY = "0.0.0.0"  # noqa: S104  the sender of a question that is only a probe


def nic_by_mac(mac: str) -> str:
    for path in sorted(Path("/sys/class/net").glob("*/address")):
        if path.read_text().strip().lower() == mac.lower():
            return path.parent.name
    return ""


def ip(*arguments: str) -> list[dict]:
    done = subprocess.run(["ip", "-json", *arguments], capture_output=True, text=True, check=True)
    return [entry for entry in json.loads(done.stdout or "[]") if entry]


def carries(nic: str, address: str) -> bool:
    """Whether the card has exactly this "address/prefix", and no other of IPv4."""
    found = [
        f"{a['local']}/{a['prefixlen']}" for link in ip("-4", "address", "show", "dev", nic) for a in link["addr_info"]
    ]
    return found == [address]


def gateway_of(nic: str) -> str:
    return next((route.get("gateway", "") for route in ip("-4", "route", "show", "default", "dev", nic)), "")


def arp(nic: str, sender: str, target: str) -> bytes:
    """The frame that asks everybody who has `target`."""
    own = bytes.fromhex(Path(f"/sys/class/net/{nic}/address").read_text().strip().replace(":", ""))
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


def announce(mac: str, seconds: float = 8) -> None:
    """Tell everybody where our addresses are now: for a minute others remember who had them before (a swap)."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        nic = nic_by_mac(mac)
        for address in [a["local"] for link in ip("-4", "address", "show", "dev", nic) for a in link["addr_info"]]:
            with wire(nic) as line:
                line.send(arp(nic, address, address))
        time.sleep(0.5)


def settle(mac: str, patience_s: float = 5) -> None:
    """networkd sets a card up twice in a row after `netplan apply`. A lease that comes in between may be lost for good
    (seen with 252: "Removing DHCPv4 address (requesting)", and no address ever after); started anew, it asks again."""
    nic, end = nic_by_mac(mac), time.monotonic() + patience_s
    while plugged_in(nic) and not any(link["addr_info"] for link in ip("-4", "address", "show", "dev", nic)):
        if time.monotonic() > end:
            subprocess.run(["systemctl", "restart", "systemd-networkd"], check=False)
            return
        time.sleep(0.2)


def plugged_in(nic: str) -> bool:
    try:
        return Path(f"/sys/class/net/{nic}/carrier").read_text().strip() == "1"
    except OSError:  # a card that is down has no carrier to tell of
        return False


def nmcli(*words: str) -> str:
    return subprocess.run(["nmcli", *words], capture_output=True, text=True, check=False).stdout.strip()


def let_go(mac: str) -> None:
    """NetworkManager's card is without settings then, as netplan does it for cards that it knows by name only."""
    nmcli("device", "disconnect", nic_by_mac(mac))


def take_up(mac: str) -> None:
    """Where netplan has not started NetworkManager anew, a card that was let go is not taken up by itself."""
    nmcli("connection", "reload")
    if nmcli("-g", "GENERAL.STATE", "device", "show", nic_by_mac(mac)).startswith("30 "):  # disconnected
        nmcli("--wait", "0", "device", "connect", nic_by_mac(mac))


if __name__ == "__main__":
    {"announce": announce, "settle": settle, "let_go": let_go, "take_up": take_up}[sys.argv[1]](sys.argv[2])
