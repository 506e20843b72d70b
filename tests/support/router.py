"""A home's router, as far as addresses and names go: one of the lab's hosts hands them out to the others."""

from __future__ import annotations

from lab.host import Host
from tests.support import pace

NAME_SERVER = """
import socket
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.bind(("", 53))
while True:
    question, asker = line.recvfrom(512)
    end = question.index(0, 12) + 5
    found = question[end - 4 : end - 2] == bytes([0, 1])  # an address of IPv4
    head = question[:2] + bytes.fromhex("81800001") + bytes([0, found, 0, 0, 0, 0])
    answer = bytes.fromhex("c00c000100010000003c0004c6336407") if found else b""
    line.sendto(head + question[12:end] + answer, asker)
"""
LEASE_S = 20  # short, so that a test sees what becomes of a lease


def answers_for_names(host: Host) -> str:
    """Whatever the name, 198.51.100.7. Returns where it listens."""
    host.run("sh", "-c", "cat > /run/name-server.py", stdin=NAME_SERVER)
    host.run("systemd-run", "--quiet", "--unit=name-server", "python3", "/run/name-server.py")
    return host.spec.installed_address


def hands_out_addresses(host: Host, name_server: str = "") -> None:
    settings = f"""[Network]
DHCPServer=yes
[DHCPServer]
PoolOffset=150
PoolSize=100
DefaultLeaseTimeSec={LEASE_S}
MaxLeaseTimeSec={LEASE_S}
EmitRouter=yes
Router={host.profile.gateway}
EmitDNS={"yes" if name_server else "no"}
{f"DNS={name_server}" if name_server else ""}
"""
    nic = host.spec.nics[0]
    folder = f"/etc/systemd/network/10-netplan-{nic}.network.d"
    host.run("sh", "-ec", f"mkdir -p {folder}; cat > {folder}/router.conf", stdin=settings)
    host.run("sh", "-ec", f"networkctl reload; networkctl reconfigure {nic}")


def address_by_lease(host: Host) -> str:
    """What the router gave to its first card; waits for it."""

    def leased() -> str:
        words = host.run("ip", "-o", "-4", "address", "show", "dev", host.spec.nics[0]).split()
        return words[words.index("inet") + 1].split("/")[0] if "dynamic" in words else ""

    return pace.until(leased, 60, f"{host.name} got no address from the router")
