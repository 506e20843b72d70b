"""A machine that has been somebody's for years: docker, ufw, a VPN, a VLAN, SSH elsewhere, hosts by hand, in German."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lab.shapes.shape import Machine, Shape, inside, inside_with_proc, write
from lab.shell import outcome

SSH_PORT = 52222
VPN_ADDRESS = "100.101.102.{}/32"
VLAN_ADDRESS = "192.168.20.{}/24"
ELSEWHERE = "172.30.0.0/16"
# The VPN's own program is not there: its device, with the name and the address that Tailscale gives it.
VPN = """\
[Unit]
Description=Lab: the device of a VPN
Wants=network-pre.target
Before=network-pre.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=ip tuntap add tailscale0 mode tun
ExecStart=ip address add {address} dev tailscale0
ExecStart=ip link set tailscale0 up
[Install]
WantedBy=multi-user.target
"""
# Where the kernel has no VLANs: another device on the same NIC, with an address of its own. networkd would wait
# for the VLAN forever, and leave the NIC without its routes until then.
INSTEAD_OF_VLAN = """\
[Unit]
Description=Lab: in place of a VLAN on {nic}
After=network.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=ip link add {nic}.20 link {nic} type macvlan mode bridge
ExecStart=ip address add {address} dev {nic}.20
ExecStart=ip link set {nic}.20 up
[Install]
WantedBy=multi-user.target
"""
# networkd takes over whatever nobody else does.
NOT_NETWORKDS = "[Match]\nName={}\n[Link]\nUnmanaged=yes\n"
TRY_VLAN = "ip link add a type veth peer name b && ip link add link a name a.20 type vlan id 20"


@cache
def kernel_has_vlans() -> bool:
    return outcome("unshare", "--net", "sh", "-c", TRY_VLAN).returncode == 0


def install(root: Path) -> None:
    write(root, "etc/ssh/sshd_config.d/port.conf", f"Port {SSH_PORT}\n")
    write(root, "etc/docker/daemon.json", '{"storage-driver": "vfs"}\n')  # an overlay on the lab's overlay is none
    write(root, "etc/systemd/network/05-tailscale.network", NOT_NETWORKDS.format("tailscale0"))
    inside_with_proc(root, f"ufw allow {SSH_PORT}/tcp comment 'SSH'; ufw allow from 192.168.20.0/24 to any port 445")
    inside(root, "sed", "-i", "s/^ENABLED=.*/ENABLED=yes/", "/etc/ufw/ufw.conf")
    inside(root, "systemctl", "--quiet", "enable", "ufw", "docker")
    _speak_german(root)


def _speak_german(root: Path) -> None:
    inside(root, *"localedef -i de_DE -f UTF-8 de_DE.UTF-8".split())
    for file in ("etc/default/locale", "etc/locale.conf"):
        if not (root / file).is_symlink():
            write(root, file, "LANG=de_DE.UTF-8\n")


def settle(machine: Machine) -> None:
    number = int(machine.address.rsplit(".", 1)[1])
    machine.write("etc/systemd/system/lab-vpn.service", VPN.format(address=VPN_ADDRESS.format(number)))
    inside(machine.root, "systemctl", "--quiet", "enable", "lab-vpn")
    machine.write("etc/hosts", hosts(machine))
    vlan = VLAN_ADDRESS.format(number) if kernel_has_vlans() else ""
    if not vlan:
        machine.write("etc/systemd/network/05-vlan.network", NOT_NETWORKDS.format(f"{machine.lan}.20"))
        unit = INSTEAD_OF_VLAN.format(nic=machine.lan, address=VLAN_ADDRESS.format(number))
        machine.write("etc/systemd/system/lab-vlan.service", unit)
        inside(machine.root, "systemctl", "--quiet", "enable", "lab-vlan")
    if machine.has("etc/network/interfaces"):
        machine.write("etc/network/interfaces", machine.read("etc/network/interfaces") + _for_ifupdown(machine, vlan))
    else:
        _into_netplan(machine, vlan)


def hosts(machine: Machine) -> str:
    """Edited on Windows and Linux in turn; the last line is without an end."""
    other = machine.others[-1]
    return (
        "127.0.0.1\tlocalhost\n127.0.1.1\tdebian\n\n"
        "# Netzwerkspeicher im Keller\r\n192.168.20.9\t\tnas  nas.fritz.box\t# Port 5000\r\n"
        f"10.77.0.77   {other.name} oldname\r\n"
        "\n# IPv6\n::1\tip6-localhost ip6-loopback\nff02::1 ip6-allnodes"
    )


def _for_ifupdown(machine: Machine, vlan: str) -> str:
    route = f"\tup ip route add {ELSEWHERE} via {machine.profile.gateway}\n"
    vlan_nic = f"{machine.lan}.20"
    return f"{route}\nallow-hotplug {vlan_nic}\niface {vlan_nic} inet static\n\taddress {vlan}\n" if vlan else route


def _into_netplan(machine: Machine, vlan: str) -> None:
    """The route beside the NIC's address, the VLAN beside the NIC."""
    for file in sorted((machine.root / "etc/netplan").glob("*.yaml")):
        plan: dict[str, Any] = yaml.safe_load(file.read_text())
        for name, nic in plan["network"].get("ethernets", {}).items():
            if machine.lan in (name, nic.get("match", {}).get("name")):
                nic.setdefault("routes", []).append({"to": ELSEWHERE, "via": machine.profile.gateway})
                added = {f"{machine.lan}.20": {"id": 20, "link": name, "addresses": [vlan]}}
                plan["network"] |= {"vlans": added} if vlan else {}
                machine.write(str(file.relative_to(machine.root)), yaml.safe_dump(plan, sort_keys=False), 0o600)
                return


SHAPE = Shape(
    name="lived-in",
    meaning="somebody's for years: docker, ufw, a VPN, a VLAN, SSH on port 52222, hosts by hand, in German",
    home=__file__,
    packages=("docker.io", "ufw", "locales"),
    language="de",
    install=install,
    write=settle,
    ssh_port=SSH_PORT,
)
