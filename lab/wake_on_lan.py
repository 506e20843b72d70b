"""The part of the lab's switch that delivers a magic packet to a host that is off or asleep: its network card reads it,
if it was armed, and wakes the host. Beside the hosts as long as the lab is up."""

from __future__ import annotations

import re
import select
import socket
import sys

from lab import faults, network
from lab import lab as labs
from lab.host import Host
from lab.place import Place

ETH_P_IP, ETH_P_WOL = 0x0800, 0x0842
MAGIC = re.compile(rb"\xff{6}(.{6})\1{15}", re.DOTALL)


def meant(frame: bytes) -> str:
    """The address of the network card that a magic packet wakes; empty for any other frame."""
    found = MAGIC.search(frame)
    return ":".join(f"{byte:02x}" for byte in found[1]) if found else ""


def armed(host: Host) -> bool:
    return (host.disk.root / "var/lib/simulated-nic" / host.cable.mac).exists()


def main() -> None:
    place = Place(name=sys.argv[1])
    ears = []
    for protocol in (ETH_P_IP, ETH_P_WOL):
        ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
        ear.bind((network.BRIDGE, protocol))
        ears.append(ear)
    while True:
        for ear in select.select(ears, [], [])[0]:
            if mac := meant(ear.recv(2048)):
                lab = labs.current(place)
                for host in [host for host in lab.hosts if host.cable.mac == mac and armed(host)]:
                    if "suspend" in faults.injected(host):
                        faults.fix(lab, host, "suspend")
                    elif not host.running and network.cable_plugged(host.cable):
                        host.power_on()


if __name__ == "__main__":
    main()
