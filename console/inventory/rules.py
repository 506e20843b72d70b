"""What must hold between the keys and the machines of an inventory. Each rule is pure and yields its findings."""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from console import infra
from console.infra import is_local
from console.inventory.keys import (
    FOLDER_RULE,
    GUARDED,
    KEYS,
    Nodes,
    Variables,
    is_address,
    is_folder,
    is_network,
    is_port,
    ports_of,
)
from console.inventory.read import GROUP
from console.inventory.what_is_wrong import Finding, nearest
from console.strict_yaml import load
from train.layout import HOME, PORTS_IN_USE
from train.plan.machines import architectures

RESERVED = frozenset(
    {"all", "ungrouped", GROUP, "localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"}
    | {"broadcasthost", "ip6-allnodes", "ip6-allrouters", "gateway", "router", "controller"}
)
EXAMPLES = (".example.org", "203.0.113.5")
"""What ansible_host ends with in inventory/slurm and inventory/elsewhere until somebody has written there."""
MOVED_PORTS = ("motley_render_presence_port", "motley_render_group_ports", "motley_artifacts_port")
NO_LAN = {
    "0.0.0.0/8": "no network",
    "100.64.0.0/10": "a VPN's or a provider's",
    "127.0.0.0/8": "each machine itself",
    "169.254.0.0/16": "what a network card takes when nobody gives it an address",
    "224.0.0.0/3": "for multicast",
}


def _names(nodes: Nodes, where: str) -> Iterator[Finding]:
    for name in nodes:
        if name.lower() in RESERVED or name.startswith("ip6-"):
            yield Finding(what=f"the name '{name}' is reserved", where=where, fix="choose another, such as gpu-master")
        elif not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name) or name.isdigit():
            fix = "use small letters, digits and hyphens, at most 63, not digits alone: " + _valid_name(name)
            yield Finding(what=f"'{name}' cannot be a machine's name", where=where, fix=fix)


def _valid_name(name: str) -> str:
    clean = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:63]
    return f"node-{clean or 1}" if clean.isdigit() or not clean else clean


def _examples(nodes: Nodes, where: str) -> Iterator[Finding]:
    """Refuses the example hosts that Motley brings: nobody's machine answers there."""
    for name, values in nodes.items():
        host = str(values.get("ansible_host", ""))
        if host.endswith(EXAMPLES):
            fix = "write the name or address of yours, as after ssh"
            yield Finding(what=f"ansible_host: {host} is still the example", where=f"{where}, {name}", fix=fix)


def _addresses(nodes: Nodes, where: str) -> Iterator[Finding]:
    for name, values in nodes.items():
        if "motley_address" not in values and _ours(values):
            fix = "add the address that it is to have: motley_address: 192.168.1.…"
            yield Finding(what="motley_address is missing", where=f"{where}, {name}", fix=fix)
    for key in ("motley_address", "motley_current_address", "motley_mac"):
        owners: dict[str, list[str]] = defaultdict(list)
        for name, values in nodes.items():
            if key in values:
                owners[str(values[key]).lower()].append(name)
        for value, names in owners.items():
            if len(names) > 1:
                what = f"{' and '.join(names)} have the same {key}, {value}"
                yield Finding(what=what, where=where, fix="give each its own")
    for name, other in _squatters(nodes):
        fix = f"give {name} another one, or give {other} a new motley_address as well"
        what = f"{name} is to have {nodes[name]['motley_address']}, where {other} answers and stays"
        yield Finding(what=what, where=where, fix=fix)


def _squatters(nodes: Nodes) -> Iterator[tuple[str, str]]:
    """Nodes whose wanted address another node uses today and will not leave (two that swap are fine)."""
    for name, values in nodes.items():
        for other, theirs in nodes.items():
            today = theirs.get("motley_current_address")
            stays = theirs.get("motley_static_ip_manage") is False
            if other != name and today and today == values.get("motley_address") and stays:
                yield name, other


def _networks(nodes: Nodes, where: str) -> Iterator[Finding]:
    for name, values in nodes.items():
        if values.get("motley_manage_host") is False:
            continue
        if "motley_subnet" not in values:
            fix = f"it expects {KEYS['motley_subnet'].expects}"
            yield Finding(what="motley_subnet is missing", where=f"{where}, vars", fix=fix)
        subnet, gateway, address = (values.get(f"motley_{part}") for part in ("subnet", "gateway", "address"))
        if not is_network(subnet):
            return
        network = ipaddress.IPv4Network(str(subnet))
        for other, whose in NO_LAN.items():
            if network.overlaps(ipaddress.IPv4Network(other)) and not is_local(values):
                fix = "write the network between your machines and the router: `ip route` on one of them shows it"
                yield Finding(what=f"{network} is no home network but {whose}", where=f"{where}, vars", fix=fix)
                return
        for server in _listed(values.get("motley_dns")):
            if str(server).startswith("127."):
                what = f"motley_dns: {server} is each machine itself"
                yield Finding(
                    what=what, where=f"{where}, vars", fix=f"write your router's: {gateway or 'ip route shows it'}"
                )
        if is_address(gateway) and ipaddress.IPv4Address(str(gateway)) not in network:
            fix = (
                "your router's address lies inside your network; `ip route` on any machine shows it after 'default via'"
            )
            yield Finding(what=f"the gateway {gateway} is outside {network}", where=f"{where}, vars", fix=fix)
        if is_address(address):
            yield from _address_fits(str(address), str(gateway), network, f"{where}, {name}")


def _address_fits(address: str, gateway: str, network: ipaddress.IPv4Network, where: str) -> Iterator[Finding]:
    number = ipaddress.IPv4Address(address)
    free = f"choose one from {network[1]} to {network[-2]} that nobody else has"
    if address == gateway:
        yield Finding(what=f"{address} is the gateway's address", where=where, fix=free)
    elif number == network.broadcast_address:
        yield Finding(what=f"{address} is the broadcast address of {network}", where=where, fix=free)
    elif number == network.network_address:
        yield Finding(what=f"{address} is the network's own address", where=where, fix=free)
    elif number not in network:
        yield Finding(what=f"{address} is outside {network}", where=where, fix=f"{free}, or correct motley_subnet")


def _heads(nodes: Nodes, where: str) -> Iterator[Finding]:
    heads = [name for name, values in nodes.items() if values.get("motley_role") == "head"]
    if len(heads) > 1:
        what = f"there are two heads: {' and '.join(heads)}"
        yield Finding(what=what, where=where, fix="one is the head: the machine listed first")
    elif heads and heads[0] != next(iter(nodes)):
        what = f"{heads[0]} is called head, but {next(iter(nodes))} is listed first"
        yield Finding(what=what, where=where, fix=f"move {heads[0]} to the top")


def _cards(nodes: Nodes, where: str) -> Iterator[Finding]:
    for name, values in nodes.items():
        card = str(values.get("motley_gpu", "none"))
        reason = architectures.unserved(card)
        if reason:
            fix = "take the machine out, or write motley_gpu: none to train on its processor"
            yield Finding(what=f"{card} {reason}", where=f"{where}, {name}", fix=fix)


def guarded_ssh(nodes: Nodes, where: str) -> Iterator[Finding]:
    defaults = load(Path(__file__).parents[2] / "roles/motley_firewall/defaults/main.yml")
    for name, values in nodes.items():
        settings = {**defaults, **values}
        ranges = [settings["motley_firewall_ports"]]
        ranges += [settings["motley_firewall_high_ports"]] if settings["motley_firewall_guard_high_ports"] else []
        port = values.get("ansible_port", 22)
        spans = [span for span in map(ports_of, ranges) if span and is_port(port) and span[0] <= port <= span[1]]
        if spans and settings["motley_firewall_manage"] and values.get("motley_manage_host") is not False:
            what = "SSH's port {} lies in {}-{}, which the firewall guards".format(port, *spans[0])
            fix = "it stays open to all, as every port where sshd listens; what else listens there does not"
            yield Finding(what=what, where=f"{where}, {name}", fix=fix)


def _homes(nodes: Nodes, where: str) -> Iterator[Finding]:
    """A node that is a folder of this machine has no units."""
    for values in nodes.values():
        home = values.get("motley_home", HOME)
        if not (is_local(values) or is_folder(home) or "{{" in str(home)):
            what = f"motley_home is {home!r}, which units and shells would take apart"
            yield Finding(what=what, where=where, fix=f"it expects {FOLDER_RULE}")


def _ports(nodes: Nodes, where: str) -> Iterator[Finding]:
    for values in nodes.values():
        first, last = ports_of(values.get("motley_firewall_ports", GUARDED)) or PORTS_IN_USE
        ssh = values.get("ansible_port", 22)
        if values.get("motley_firewall_manage") is False or is_local(values):
            continue
        if is_port(ssh) and first <= ssh <= last:
            fix = "let sshd listen on another, or choose other motley_firewall_ports"
            yield Finding(what=f"SSH's port {ssh} is one of a run's, {first}-{last}", where=where, fix=fix)
        if not ((first <= PORTS_IN_USE[0] and PORTS_IN_USE[1] <= last) or any(key in values for key in MOVED_PORTS)):
            what = (
                f"runs need the ports {PORTS_IN_USE[0]} to {PORTS_IN_USE[1]}, motley_firewall_ports is {first}-{last}"
            )
            yield Finding(what=what, where=f"{where}, vars", fix="take it out, or widen it")


def _rollback(nodes: Nodes, where: str) -> Iterator[Finding]:
    """A node must still wait when the controller has found it."""
    for values in nodes.values():
        waits, looks = (
            values.get(f"motley_static_ip_{key}_s", usual) for key, usual in (("rollback", 60), ("reconnect", 25))
        )
        if isinstance(waits, (int, float)) and isinstance(looks, (int, float)) and not 0 < looks < waits:
            what = f"a node takes the change back after {waits} s, and the controller looks for it for {looks} s"
            fix = "motley_static_ip_rollback_s must be the larger one (usual: 60 and 25)"
            yield Finding(what=what, where=f"{where}, vars", fix=fix)


def _sets(nodes: Nodes, where: str) -> Iterator[Finding]:
    locked = ["node-cpu", "node-gpu", "node-gpu-r570", "unsloth"]
    written = {name: values.get("motley_python_env_sets") or [] for name, values in nodes.items()}
    if not all(isinstance(sets, list) for sets in written.values()):
        return
    wanted = {name: _listed(sets) for name, sets in written.items()}
    first = next(iter(wanted))
    for name, sets in wanted.items():
        if wanted[first] != sets:
            fix = "write the same for all, below vars: a run cannot mix them"
            yield Finding(what=f"motley_python_env_sets differs between {first} and {name}", where=where, fix=fix)
            return
    if "motley_python_env_requirements" in nodes[first]:  # locks of one's own
        return
    for unknown in [entry for entry in wanted[first] if entry not in locked]:
        fix = nearest(str(unknown), locked, otherwise=f"there are: {', '.join(locked)}")
        yield Finding(what=f"there is no locked set '{unknown}'", where=f"{where}, vars", fix=fix)
        return
    if wanted[first] and sum(str(entry).startswith("node-") for entry in wanted[first]) != 1:
        fix = "one of them is node-cpu, node-gpu or node-gpu-r570"
        yield Finding(what=f"motley_python_env_sets is {wanted[first]}", where=f"{where}, vars", fix=fix)


def _logins(nodes: Nodes, where: str) -> Iterator[Finding]:
    without_login = [name for name, values in nodes.items() if is_local(values) or not _ours(values)]
    missing = [name for name, values in nodes.items() if "ansible_user" not in values and name not in without_login]
    if missing:
        fix = "add below vars: 'ansible_user: NAME', the name with which you log in on the machines"
        yield Finding(what=f"nobody is named to log in on {', '.join(missing)}", where=where, fix=fix)


def _elsewhere(nodes: Nodes, where: str) -> Iterator[Finding]:
    """Hosts that stand for what is not ours to set up."""
    for name, values in nodes.items():
        if _ours(values):
            continue
        if len(nodes) > 1 and (fix := infra.infra_of(values).one_host):
            what = f"there are {len(nodes)} machines beside infra: {infra.name_of(values)}"
            yield Finding(what=what, where=where, fix=fix)
        if not (is_local(values) or values.get("ansible_host")):
            yield Finding(what="ansible_host is missing", where=f"{where}, {name}", fix="write what you type after ssh")


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _ours(values: Variables) -> bool:
    """Whether Motley sets the host up; of an unknown infra that is no question (its key is a finding)."""
    return infra.name_of(values) not in infra.NAMES or infra.infra_of(values).ours


RULES = (
    _names,
    _examples,
    _addresses,
    _networks,
    _heads,
    _cards,
    _logins,
    _homes,
    _ports,
    _rollback,
    _sets,
    _elsewhere,
)
