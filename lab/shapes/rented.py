"""A container on a stranger's machine, as markets let them: root with a key and no password, no systemd, SSH on the
port that the market has mapped."""

from __future__ import annotations

from pathlib import Path

from lab.shapes.shape import NETWORK, Machine, Shape, write

SSH_PORT = 40122
INIT = f"""\
#!/bin/bash
# PID 1, where systemd would be: the network is there when a container starts, and sshd is all that runs.
trap 'exit 0' SIGTERM SIGRTMIN+3
. /etc/lab-address
ip link set lo up
ip link set "$nic" up
ip address add "$address" dev "$nic"
ip route add default via "$gateway"
mkdir -p /run/sshd
/usr/sbin/sshd -p {SSH_PORT}
while :; do sleep 3600 & wait $!; done
"""


def install(root: Path) -> None:
    write(root, "usr/lib/systemd/systemd", INIT, 0o755)


def as_let(machine: Machine) -> None:
    facts = {"nic": machine.lan, "address": f"{machine.address}/{machine.prefix}", "gateway": machine.profile.gateway}
    machine.write("etc/lab-address", "".join(f"{name}={value}\n" for name, value in facts.items()))


SHAPE = Shape(
    name="rented",
    meaning="a rented container: root by key alone, no systemd, SSH on a mapped port",
    home=__file__,
    decides=NETWORK,
    install=install,
    write=as_let,
    ssh_port=SSH_PORT,
)
