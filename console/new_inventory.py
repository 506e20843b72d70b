"""`./motley inventory`: a few questions, or --hosts "user@address …", and hosts.yml is written."""

from __future__ import annotations

import ipaddress
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from console.inventory.check import check

# How Ansible reaches a node: every inventory folder needs it beside its hosts.yml.
GROUP_VARS = Path(__file__).parents[1] / "inventory/homelab/group_vars"

TEMPLATE = """\
# Your machines; docs/reference.md explains every key. Next: ./motley bootstrap

cluster:
  vars:
    ansible_user: {user}
    motley_subnet: {subnet}
    motley_gateway: {gateway}

  # The first one is the head. The names become the machines' own. motley_address: its permanent address;
  # reserve it in your router, or choose one outside the range that the router assigns (DHCP).
  hosts:
{hosts}"""


@dataclass(frozen=True, slots=True)
class Machine:
    user: str
    address: str
    port: int = 22


def parse_hosts(words: str) -> list[Machine]:
    """Machines of "user@address user@address"; ValueError says which word is wrong."""
    machines: list[Machine] = []
    for word in words.replace(",", " ").split():
        match = re.fullmatch(r"([A-Za-z_][A-Za-z0-9_.-]*)@(\d+\.\d+\.\d+\.\d+)(?::(\d{1,5}))?", word)
        if match is None:
            raise ValueError(f"'{word}' is not user@address, such as anna@192.168.1.23")
        try:
            ipaddress.IPv4Address(match[2])
        except ValueError:
            raise ValueError(f"'{match[2]}' is no address") from None
        if match[2] in [machine.address for machine in machines]:
            raise ValueError(f"{match[2]} is named twice: one machine, one address")
        machines.append(Machine(match[1], match[2], int(match[3] or 22)))
    if not machines:
        raise ValueError("no machine was named")
    return machines


def gateway_here(network: ipaddress.IPv4Network) -> str:
    """This computer's own router if it is in that network; else the usual first address."""
    done = subprocess.run(["ip", "-4", "route", "show", "default"], capture_output=True, text=True, check=False)
    for address in re.findall(r"default via (\S+)", done.stdout):
        if ipaddress.IPv4Address(address) in network:
            return str(address)
    return str(network[1])


def render(machines: list[Machine], gateway: str = "") -> str:
    """Machines keep the address that they have now: nothing moves unless a person edits it."""
    network = ipaddress.IPv4Network(f"{machines[0].address}/24", strict=False)
    hosts = ""
    for number, machine in enumerate(machines):
        name = "gpu-master" if number == 0 else f"gpu-worker-{number}"
        hosts += f"    {name}:\n      motley_address: {machine.address}\n"
        if machine.user != machines[0].user:
            hosts += f"      ansible_user: {machine.user}\n"
        if machine.port != 22:
            hosts += f"      ansible_port: {machine.port}\n"
    return TEMPLATE.format(user=machines[0].user, subnet=network, gateway=gateway or gateway_here(network), hosts=hosts)


def describe(inventory: str, hosts: str) -> int:
    return write_inventory(Path(inventory) / "hosts.yml", hosts)


def write_inventory(path: Path, words: str) -> int:
    if not words and not sys.stdin.isatty():
        print('say which machines: ./motley inventory --hosts "user@192.168.1.23 user@192.168.1.31"', file=sys.stderr)
        return 2
    try:
        machines = parse_hosts(words) if words else questions()
    except ValueError as wrong:
        print(wrong, file=sys.stderr)
        return 2
    path.parent.mkdir(parents=True, exist_ok=True)
    if not (path.parent / "group_vars").exists():
        shutil.copytree(GROUP_VARS, path.parent / "group_vars")
    if path.exists():
        kept = path.with_suffix(".yml.before")
        path.replace(kept)
        print(f"the file that was there is now {kept}")
    path.write_text(render(machines), encoding="utf-8")
    print(path.read_text(encoding="utf-8"))
    findings = check(path.parent).findings
    for finding in findings:
        print(finding, file=sys.stderr)
    if findings:
        print(f"written: {path}   fix what is named above; then ./motley check", file=sys.stderr)
        return 2
    where = "" if path.resolve().parent == GROUP_VARS.parent else f" --inventory {shlex.quote(str(path.parent))}"
    print(f"written: {path}   edit names and addresses as you like; next: ./motley bootstrap{where}")
    return 0


def questions() -> list[Machine]:
    user = input("login name on the machines: ").strip()
    first = input("address of the first machine, the head (on it: hostname -I): ").strip()
    others = input("addresses of the others, with spaces between: ").split()
    return parse_hosts(" ".join(f"{user}@{address}" for address in [first, *others]))
