"""Ubuntu 26.04 Server: sudo is sudo-rs, Python is 3.14, and cloud-init wrote the installer's answers down for netplan.

It stands on Debian's next release, whose sudo-rs and Python are those of Ubuntu 26.04 or newer; on Debian 13 with its
own, older ones. cloud-init itself is not installed: its files are.
"""

from __future__ import annotations

from pathlib import Path

from lab.shapes.shape import NETWORK, Machine, Shape, inside

RUST = "/usr/lib/cargo/bin"


def install(root: Path) -> None:
    """Installs sudo as Ubuntu does: both are there, and what is called sudo is the new one."""
    for program, folder in (("sudo", "/usr/bin"), ("visudo", "/usr/sbin")):
        path = f"{folder}/{program}"
        inside(root, *"dpkg-divert --quiet --local --rename --divert".split(), f"{path}.ws", path)
        inside(root, *"update-alternatives --quiet --install".split(), path, program, f"{RUST}/{program}", "50")
    inside(root, *"update-alternatives --quiet --install /usr/bin/sudo sudo /usr/bin/sudo.ws 40".split())


def answers(machine: Machine) -> None:
    spare = "".join(f"    {nic}:\n      dhcp4: true\n      optional: true\n" for nic in machine.spec.nics[1:])
    plan = f"""\
network:
  version: 2
  ethernets:
    {machine.lan}:
      addresses:
      - "{machine.address}/{machine.prefix}"
      nameservers:
        addresses:
        - {machine.profile.gateway}
        search: []
      routes:
      - to: "default"
        via: "{machine.profile.gateway}"
{spare}"""
    machine.write("etc/netplan/50-cloud-init.yaml", plan, 0o600)
    machine.write("etc/cloud/cloud.cfg.d/90-installer-network.cfg", f"# written by subiquity\n{plan}", 0o600)


SHAPE = Shape(
    name="server-2604",
    meaning="Ubuntu 26.04 Server: sudo-rs, Python 3.14, cloud-init's netplan file",
    home=__file__,
    suite="forky",
    decides=NETWORK,
    packages=("sudo-rs",),
    install=install,
    write=answers,
)
