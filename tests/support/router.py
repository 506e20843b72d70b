"""A home's router, as far as addresses go: one of the lab's hosts hands them out to the others."""

from __future__ import annotations

import time

from lab.host import Host

LEASE_S = 20  # short, so that a test sees what becomes of a lease


def hands_out_addresses(host: Host) -> None:
    settings = f"""[Network]
DHCPServer=yes
[DHCPServer]
PoolOffset=150
PoolSize=100
DefaultLeaseTimeSec={LEASE_S}
MaxLeaseTimeSec={LEASE_S}
EmitRouter=yes
Router={host.profile.gateway}
EmitDNS=no
"""
    nic = host.spec.nics[0]
    folder = f"/etc/systemd/network/10-netplan-{nic}.network.d"
    host.run("sh", "-ec", f"mkdir -p {folder}; cat > {folder}/router.conf", stdin=settings)
    host.run("sh", "-ec", f"networkctl reload; networkctl reconfigure {nic}")


def address_by_lease(host: Host, timeout_s: float = 60) -> str:
    """What the router gave to its first card; waits for it."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        words = host.run("ip", "-o", "-4", "address", "show", "dev", host.spec.nics[0]).split()
        if "dynamic" in words:
            return words[words.index("inet") + 1].split("/")[0]
        time.sleep(0.3)
    raise AssertionError(f"{host.name} got no address from the router")
