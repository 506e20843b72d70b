"""`./motley inventory`: writes hosts.yml from a few questions or from --hosts; --add and --remove change it."""

from __future__ import annotations

import contextlib
import getpass
import ipaddress
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from console.inventory import edit
from console.inventory.check import check
from console.inventory.keys import is_address, is_network
from console.text_layout import counted
from train.errors import BadInput

# How Ansible reaches a node: every inventory folder needs it beside its hosts.yml.
GROUP_VARS = Path(__file__).parents[1] / "inventory/homelab/group_vars"
ANSWER_S = 1.5
HOME = ipaddress.IPv4Network("192.168.0.0/16")
WITHIN = (ipaddress.IPv4Network("172.16.0.0/12"), ipaddress.IPv4Network("192.168.122.0/24"))
"""Where Docker and libvirt have addresses that mostly no other machine reaches, although `hostname -I` lists them."""

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
    name: str = ""
    """The name that was given instead of an address."""

    def keys(self, usual_user: str) -> list[str]:
        """Its lines of hosts.yml."""
        user = [f"ansible_user: {self.user}"] if self.user != usual_user else []
        return [f"motley_address: {self.address}", *user, *([f"ansible_port: {self.port}"] if self.port != 22 else [])]


# -- what was typed ----------------------------------------------------------------------------------------------------


def parse_hosts(words: str) -> list[Machine]:
    """Machines of "user@address user@address"; ValueError says which word is wrong."""
    machines: list[Machine] = []
    for word in words.replace(",", " ").split():
        machines.append(fits(parse_machine(word), machines))
    if not machines:
        raise ValueError("type at least one machine, such as anna@192.168.1.23")
    return machines


def parse_machine(text: str, user: str = "") -> Machine:
    """One machine: [user@]address, [user@]name, or all that `hostname -I` prints on it."""
    words = text.split()
    if len(words) > 1:
        words = [best_of(words)]
    if not words:
        raise ValueError("type an address, such as 192.168.1.23")
    match = re.fullmatch(r"(?:([A-Za-z_][\w.-]*)@)?([A-Za-z0-9][\w.-]*)(?::(\d{1,5}))?", words[0])
    if match is None or not (match[1] or user):
        raise ValueError(f"'{text}' is not user@address, such as anna@192.168.1.23")
    address, port = address_of(match[2]), int(match[3] or 22)
    if not 0 < port < 1 << 16:
        raise ValueError(f"'{text}': a port is a number from 1 to 65535")
    name = "" if str(address) == match[2] else match[2].partition(".")[0].lower().replace("_", "-")
    return Machine(match[1] or user, str(address), port, name)


def best_of(texts: Sequence[str]) -> str:
    """The one of a machine's addresses that is most likely in the home network: a VPN's mostly begins with 10."""
    addresses = []
    for text in texts:
        with contextlib.suppress(ValueError):
            addresses.append(ipaddress.ip_address(text))
    if len(addresses) < len(texts):
        raise ValueError("one machine at a time, please: an address, a name, or what `hostname -I` prints on it")
    usable = [address for address in addresses if isinstance(address, ipaddress.IPv4Address) and at_home(address)]
    if not usable:
        raise ValueError(f"none of {' '.join(texts)} is an IPv4 address of a home network, such as 192.168.1.23")
    return str(min(usable, key=lambda address: (any(address in net for net in WITHIN), address not in HOME)))


def address_of(host: str) -> ipaddress.IPv4Address:
    try:
        resolved = host if re.fullmatch(r"[\d.]+", host) else socket.getaddrinfo(host, None, socket.AF_INET)[0][4][0]
        address = ipaddress.IPv4Address(resolved)
    except OSError:
        raise ValueError(f"nobody here knows the name '{host}': type its address (on it: hostname -I)") from None
    except ValueError:
        raise ValueError(f"'{host}' is not an address: four numbers up to 255, such as 192.168.1.23") from None
    if address.is_loopback:
        raise ValueError(f"{address} is each machine itself: type its address in your network (on it: hostname -I)")
    if not at_home(address):
        raise ValueError(f"{address} is a public address: at home they begin with 192.168, 10 or 172.16 to 172.31")
    return address


def at_home(address: ipaddress.IPv4Address) -> bool:
    return address.is_private and not address.is_loopback


def fits(machine: Machine, others: Sequence[Machine], subnet: str = "") -> Machine:
    """The machine, where it can stand beside the others."""
    if machine.address in [other.address for other in others]:
        raise ValueError(f"{machine.address} is already in the list: each machine has its own address")
    network = ipaddress.IPv4Network(subnet) if subnet else network_of(others[0] if others else machine)
    if ipaddress.IPv4Address(machine.address) not in network:
        what = f"{machine.address} is outside {network}, the network of the other machines: all must be in one"
        raise ValueError(f"{what}; if it is larger, correct motley_subnet" if subnet else what)
    return machine


def network_of(machine: Machine) -> ipaddress.IPv4Network:
    """The network, as large as this computer knows it: a TP-Link Deco's has 1024 addresses; else with 256."""
    own = map(ipaddress.IPv4Network, re.findall(r"^([\d.]+/\d+) dev .* scope link", routes_here(), re.MULTILINE))
    found = [network for network in own if ipaddress.IPv4Address(machine.address) in network]
    usual = ipaddress.IPv4Network(f"{machine.address}/24", strict=False)
    return max(found, key=lambda network: network.prefixlen, default=usual)


# -- questions ---------------------------------------------------------------------------------------------------------


def ask(question: str) -> str:
    """The answer; Ctrl-D is Ctrl-C."""
    try:
        return input(question).strip()
    except EOFError:
        raise KeyboardInterrupt from None


def choose(question: str, letters: str) -> str:
    """The first letter of the answer; Enter is the first of the letters."""
    while (answer := ask(question).lower()[:1] or letters[0]) not in letters:
        pass
    return answer


def questions(others: Sequence[Machine] = (), user: str = "", subnet: str = "") -> list[Machine]:
    """Asks for machines, each until its answer is good; `others`: those that are described already, in `subnet`."""
    usual = user or getpass.getuser()
    user = user or ask(f"login name on the machines [{usual}]: ") or usual
    machines = [*others]
    while True:
        which = "next machine (Enter: no more)" if machines else "first machine, the head (on it: hostname -I)"
        text = ask(f"address or name of the {which}: ")
        if not text and machines:
            return machines[len(others) :]
        try:
            machines.append(fits(parse_machine(text, user), machines, subnet))
        except ValueError as wrong:
            print(f"  {wrong}")
        else:
            print(f"  {reached(machines[-1])}")


def reached(machine: Machine) -> str:
    """Whether its sshd answers now, in words: a machine may be off while it is described."""
    try:
        socket.create_connection((machine.address, machine.port), ANSWER_S).close()
    except OSError:
        return (
            f"{machine.address} does not answer on port {machine.port} (kept all the same)\n"
            "    fix: switch it on; on it: sudo apt install openssh-server"
        )
    return f"{machine.address} answers on port {machine.port}"


# -- the file ----------------------------------------------------------------------------------------------------------


def routes_here() -> str:
    return subprocess.run(["ip", "-4", "route", "show"], capture_output=True, text=True, check=False).stdout


def gateway_here(network: ipaddress.IPv4Network) -> str:
    """This computer's own router if it is in that network; else the usual first address."""
    for address in re.findall(r"^default via ([\d.]+)", routes_here(), re.MULTILINE):
        if ipaddress.IPv4Address(address) in network:
            return str(address)
    return str(network[1])


def names_of(machines: Sequence[Machine], taken: Sequence[str] = ()) -> list[str]:
    """The name that was typed, or gpu-master for the first and gpu-worker-N for the others."""
    names = [*taken]
    for machine in machines:
        usual = [*([] if names else ["gpu-master"]), *(f"gpu-worker-{n}" for n in range(1, len(names) + 2))]
        names.append(next(name for name in (machine.name, *usual) if name and name not in names))
    return names[len(taken) :]


def render(machines: list[Machine], gateway: str = "") -> str:
    """Machines keep the address that they have now: nothing moves unless a person edits it."""
    network, user = network_of(machines[0]), machines[0].user
    hosts = ""
    for name, machine in zip(names_of(machines), machines, strict=True):
        hosts += "\n".join([f"    {name}:", *(f"      {key}" for key in machine.keys(user))]) + "\n"
    return TEMPLATE.format(user=user, subnet=network, gateway=gateway or gateway_here(network), hosts=hosts)


def describe(inventory: str, hosts: str, add: str = "", remove: str = "") -> int:
    path = Path(inventory) / "hosts.yml"
    if add:
        return add_machines(path, add)
    return remove_machine(path, remove) if remove else write_inventory(path, hosts)


def write_inventory(path: Path, words: str) -> int:
    if not words and not sys.stdin.isatty():
        print('say which machines: ./motley inventory --hosts "user@192.168.1.23 user@192.168.1.31"', file=sys.stderr)
        return 2
    if not words and path.exists():
        there = f"{path} already describes {counted(len(check(path.parent).nodes), 'machine')}: "
        answer = choose(f"{there}[a]dd more, start a [n]ew file, or [q]uit? [q] ", "qan")
        if answer != "n":
            return add_machines(path, "") if answer == "a" else 0
    try:
        machines = parse_hosts(words) if words else questions()
    except ValueError as wrong:
        print(wrong, file=sys.stderr)
        return 2
    text = render(machines)
    print(text)
    if not words and choose(f"write this to {path}? [Y/n] ", "yn") == "n":
        print("nothing was changed")
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    if not (path.parent / "group_vars").exists():
        shutil.copytree(GROUP_VARS, path.parent / "group_vars")
    if path.exists():
        print(f"the file that was there is now {edit.kept(path)}")
    path.write_text(text, encoding="utf-8")
    findings = check(path.parent).findings
    for finding in findings:
        print(finding, file=sys.stderr)
    if findings:
        print(f"written: {path}   fix what is listed above; then ./motley check{of(path)}", file=sys.stderr)
        return 2
    print(f"written: {path}   edit names and addresses as you like; next: ./motley bootstrap{of(path)}")
    return 0


def of(path: Path) -> str:
    """What a command about these machines ends with."""
    usual = path.resolve().parent == GROUP_VARS.parent
    return "" if usual else f" --inventory {shlex.quote(str(path.parent))}"


def add_machines(path: Path, words: str) -> int:
    """Adds those of `words`, or those that are asked for."""
    taken = edit.nodes_of(path)
    nodes = [*check(path.parent).nodes.values()]
    user, subnet = (str(nodes[0].get(key, "")) if nodes else "" for key in ("ansible_user", "motley_subnet"))
    subnet = subnet if is_network(subnet) else ""
    others = [Machine(user, str(node["motley_address"])) for node in nodes if is_address(node.get("motley_address"))]
    try:
        machines = [] if words else questions(others, user, subnet)
        for word in words.split():
            machines.append(fits(parse_machine(word, user), [*others, *machines], subnet))
    except ValueError as wrong:
        raise BadInput(str(wrong)) from None
    for name, machine in zip(names_of(machines, taken), machines, strict=True):
        copy = edit.add(path, name, machine.keys(user))
        print(f"added {name} at {machine.address} to {path} (before: {copy.name})")
        if words:
            print(f"  {reached(machine)}")
    if machines:
        print(f"next: ./motley bootstrap{of(path)}   sets it up, and makes the others know it")
    return 0


def remove_machine(path: Path, name: str) -> int:
    undo = f"./motley undo --phase all --nodes {name}{of(path)}"
    head = edit.others(path, name)[0]
    if sys.stdin.isatty():
        print(f"To take back what Motley has set up on {name}, first run, while it is still described:\n  {undo}")
        if choose(f"remove {name} from {path} now? [y/N] ", "ny") == "n":
            print("nothing was changed")
            return 0
    copy = edit.remove(path, name)
    print(f"removed {name} from {path} (before: {copy.name})")
    print(f"next: ./motley bootstrap{of(path)}   makes the others forget it ({head} is the head)")
    print(f"not undone on {name} yet? mv {shlex.quote(str(copy))} {shlex.quote(str(path))}; {undo}; remove it again")
    return 0
