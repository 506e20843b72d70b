"""Checks an inventory before anything is connected to: every finding at once, in well under a second.

    python -m console check [--inventory inventory/homelab]

Reads the YAML alone, without Ansible. Valid keys are those below and the variables that the roles declare in
their meta/argument_specs.yml, so a new role's settings are known here by themselves.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console import cards
from console.strict_yaml import Vaulted, YamlError, load
from train.layout import HOME, PORTS, PORTS_IN_USE

GROUP = "cluster"
RESERVED = frozenset(
    {"all", "ungrouped", GROUP, "localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"}
    | {"broadcasthost", "ip6-allnodes", "ip6-allrouters", "gateway", "router", "controller"}
)
SECRETS = ("ansible_password", "ansible_become_password", "ansible_ssh_pass", "ansible_sudo_pass")


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that is wrong, where it stands, and the edit that mends it."""

    what: str
    where: str
    mend: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}\n    {self.mend}"


@dataclass(kw_only=True, slots=True)
class Inventory:
    """A checked inventory, as far as it could be read; `nodes` in their order, each with all its variables."""

    path: Path
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    """Worth knowing, and nothing wrong."""

    @property
    def state(self) -> Path:
        """The controller's folder for this cluster: known_hosts, key, receipts."""
        root = Path(__file__).parents[1]
        for variables in self.nodes.values():
            named = variables.get("motley_state", "")
            return Path(named) if named and "{{" not in named else root / ".motley"
        return root / ".motley"


@dataclass(frozen=True, slots=True)
class Key:
    expects: str
    accepts: Callable[[Any], bool]
    on_node_only: bool = False


def _is_address(value: Any) -> bool:
    try:
        ipaddress.IPv4Address(value if isinstance(value, str) else "")
    except ValueError:
        return False
    return True


def _is_network(value: Any) -> bool:
    try:
        network = ipaddress.IPv4Network(value if isinstance(value, str) else "")
    except ValueError:
        return False
    return "/" in str(value) and network.prefixlen <= 30


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def is_folder(value: Any) -> bool:
    """A folder on a node that systemd's units, shells and ssh all take as it is written."""
    return isinstance(value, str) and FOLDER.fullmatch(value) is not None and ".." not in value.split("/")


def _is_addresses(value: Any) -> bool:
    return isinstance(value, list) and all(_is_address(item) for item in value)


def _is_mac(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}", value) is not None


def _is_port(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536


FOLDER = re.compile(r"~?(/[\w.+@-]+)+/?")
FOLDER_RULE = f"a folder such as {HOME} or /srv/cluster, of letters, digits and . _ + @ - alone"


def _is_ports(value: Any) -> bool:
    return ports_of(value) is not None


def ports_of(value: Any) -> tuple[int, int] | None:
    found = re.fullmatch(r"(\d{1,5})-(\d{1,5})", value) if isinstance(value, str) else None
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    return (first, last) if 1024 <= first < last < 65536 else None


GUARDED = f"{PORTS[0]}-{PORTS[1]}"
MOVED_PORTS = ("motley_render_presence_port", "motley_render_group_ports", "motley_artifacts_port")
NO_LAN = {
    "0.0.0.0/8": "no network",
    "100.64.0.0/10": "a VPN's or a provider's",
    "127.0.0.0/8": "each machine itself",
    "169.254.0.0/16": "what a card takes when nobody gives it an address",
    "224.0.0.0/3": "for multicast",
}
ADDRESS = "an IPv4 address such as 192.168.1.100"
KEYS: dict[str, Key] = {
    "motley_address": Key(ADDRESS, _is_address, on_node_only=True),
    "motley_current_address": Key(ADDRESS, _is_address, on_node_only=True),
    "motley_mac": Key('a network card\'s address in quotes, such as "3c:7c:3f:00:00:01"', _is_mac, on_node_only=True),
    "motley_gpu": Key("a card's name such as RTX 4070, or none", _is_text, on_node_only=True),
    "motley_role": Key("head or worker", lambda value: value in ("head", "worker"), on_node_only=True),
    "motley_subnet": Key("your network with its size, such as 192.168.1.0/24", _is_network),
    "motley_gateway": Key(ADDRESS, _is_address),
    "motley_dns": Key("a list of addresses such as [192.168.1.1], or []", _is_addresses),
    "motley_state": Key("a folder on the controller", _is_text),
    "motley_state_folder": Key("a folder on the controller", _is_text),
    "motley_home": Key("a folder on the node", _is_text),
    "motley_manage_host": Key("true or false", lambda value: isinstance(value, bool)),
    "ansible_user": Key("a login name", _is_text),
    "ansible_port": Key("a port number", _is_port),
    "ansible_host": Key("an address or name", _is_text),
    "ansible_python_interpreter": Key("a path on the node", _is_text),
    "ansible_ssh_private_key_file": Key("a path on the controller", _is_text),
    "ansible_ssh_common_args": Key("options for ssh", _is_text),
    "ansible_ssh_extra_args": Key("options for ssh", _is_text),
    "ansible_control_path": Key("a path pattern", _is_text),
    "ansible_connection": Key("ssh or local", lambda value: value in ("ssh", "local")),
    # Of the Hugging Face hub; no role declares it, as that would unlock it on the way to the nodes.
    "motley_hub_token": Key("a value made by ansible-vault", lambda value: isinstance(value, Vaulted)),
    **{name: Key("a value made by ansible-vault", lambda value: isinstance(value, Vaulted)) for name in SECRETS},
}

TYPES: dict[str, Key] = {
    "bool": Key("true or false, without quotes", lambda value: isinstance(value, bool)),
    "int": Key("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "float": Key("a number", lambda value: isinstance(value, (int, float)) and not isinstance(value, bool)),
    "list": Key("a list", lambda value: isinstance(value, list)),
    "dict": Key("a mapping", lambda value: isinstance(value, dict)),
    "str": Key("a text", _is_text),
    "path": Key("a path", _is_text),
}


def _one_of(choices: list[Any]) -> Key:
    return Key("one of " + ", ".join(map(str, choices)), lambda value: value in choices)


# What a type alone does not say.
SHAPES = {
    "motley_firewall_ports": Key(f"FIRST-LAST, such as {GUARDED}, from 1024 to 65535", _is_ports),
    "motley_firewall_high_ports": Key(f"FIRST-LAST, such as {GUARDED}, from 1024 to 65535", _is_ports),
}


def role_keys(roles: Path) -> dict[str, Key]:
    """Every `motley_…` variable that a role declares, with its type."""
    keys: dict[str, Key] = {}
    for spec in sorted(roles.glob("*/meta/argument_specs.yml")):
        options = load(spec)["argument_specs"]["main"].get("options", {})
        for name, option in options.items():
            choices = option.get("choices")
            keys[name] = _one_of(choices) if choices else TYPES[option.get("type", "str")]
    return keys | SHAPES


def check(path: Path, roles: Path | None = None) -> Inventory:
    """Read and judge an inventory folder (or its hosts.yml)."""
    hosts_file = _hosts_file(path)
    inventory = Inventory(path=path)
    keys = {**role_keys(roles or Path(__file__).parents[1] / "roles"), **KEYS}
    try:
        _read(hosts_file, inventory, keys)
    except FileNotFoundError:
        mend = "make inventory writes one; or name another: INVENTORY=inventory/…"
        inventory.findings.append(Finding(what="there is no such file", where=str(hosts_file), mend=mend))
    except YamlError as wrong:
        inventory.findings.append(Finding(what=wrong.what, where=wrong.where, mend=wrong.mend))
    except OSError as wrong:
        what = f"it cannot be read: {wrong.strerror}"
        inventory.findings.append(Finding(what=what, where=str(wrong.filename), mend="look at it: ls -ld"))
    if inventory.nodes:
        where = str(hosts_file)
        for judge in (_names, _addresses, _networks, _heads, _cards, _logins, _homes, _ports, _rollback, _sets):
            inventory.findings.extend(judge(inventory.nodes, where))
        inventory.notes.extend(_guarded_ssh(inventory.nodes, where))
        inventory.findings = list(dict.fromkeys(inventory.findings))  # what all nodes share is said once
    return inventory


def is_local(values: Mapping[str, Any]) -> bool:
    """A node that is a folder on this machine: nobody logs in, nothing asks for a password."""
    return "ansible_connection" in values and values["ansible_connection"] == "local"


def _hosts_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    return next(filter(_is_program, sorted(path.iterdir())), path / "hosts.yml")


def _is_program(file: Path) -> bool:
    """As Ansible tells it; on some disks every file may be executed."""
    if not (file.is_file() and os.access(file, os.X_OK)):
        return False
    with file.open("rb") as content:
        return content.read(2) == b"#!"


def _load(hosts_file: Path) -> Any:
    """The file itself, or for a program (the lab's inventory) what it prints, in the shape of a file."""
    if not _is_program(hosts_file):
        return load(hosts_file)
    done = subprocess.run([hosts_file.resolve(), "--list"], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ended with exit code {done.returncode} and printed nothing"]
        raise YamlError(lines[0], str(hosts_file), " ".join(lines[1:]) or "run it by hand to see why")
    printed = json.loads(done.stdout)
    group, facts = printed.get(GROUP, {}), printed["_meta"]["hostvars"]
    return {GROUP: {"vars": group.get("vars"), "hosts": {name: facts[name] for name in group.get("hosts", [])}}}


def _read(hosts_file: Path, inventory: Inventory, keys: dict[str, Key]) -> None:
    data = _load(hosts_file)
    group = _group(data)
    if group is None:
        mend = f"it begins with '{GROUP}:', below it 'vars:' and 'hosts:'; inventory/homelab/hosts.yml is an example"
        inventory.findings.append(Finding(what=f"the group '{GROUP}' is missing", where=str(hosts_file), mend=mend))
        return
    shared: dict[str, Any] = {}
    folder = hosts_file.parent
    for name in ("all", GROUP):
        shared |= _variables_beside(folder / "group_vars", name, keys, inventory)
    inventory.findings += _strangers(folder / "group_vars", _groups(data), "group")
    inventory.findings += _strangers(folder / "host_vars", list(_mapping(group.get("hosts"))), "machine")
    for part in ("vars", "hosts"):
        if not isinstance(group.get(part) or {}, dict):
            mend = "write 'name: value' lines below it, two spaces deeper, without a dash before them"
            inventory.findings.append(Finding(what=f"{part} is no mapping", where=str(hosts_file), mend=mend))
            return
    own = group.get("vars") or {}
    _judge_keys(own, f"{hosts_file}, vars", keys, inventory, on_node=False)
    shared |= own
    for name, written in (group.get("hosts") or {}).items():
        settings = written or {}
        if not isinstance(settings, dict):
            mend = "write its keys below it, one a line, two spaces deeper, with a space after each colon"
            inventory.findings.append(Finding(what="has no keys", where=f"{hosts_file}, {name}", mend=mend))
            continue
        _judge_keys(settings, f"{hosts_file}, {name}", keys, inventory, on_node=True)
        beside = _variables_beside(folder / "host_vars", str(name), keys, inventory, on_node=True)
        inventory.nodes[str(name)] = {**shared, **beside, **settings}
    if not inventory.nodes:
        mend = "name at least one machine below 'hosts:'"
        inventory.findings.append(Finding(what="there is no machine in it", where=str(hosts_file), mend=mend))


def _mapping(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _group(data: Any) -> dict[str, Any] | None:
    top = _mapping(data).get(GROUP) or _mapping(_mapping(_mapping(data).get("all")).get("children")).get(GROUP)
    return top if isinstance(top, dict) else None


def _groups(data: Any) -> list[str]:
    """All of the file, at whatever depth."""
    found = ["all", "ungrouped"]
    for name, value in _mapping(data).items():
        found += [str(name), *_groups(_mapping(value).get("children"))]
    return found


def _strangers(folder: Path, known: list[Any], kind: str) -> Iterator[Finding]:
    """Files of variables that Ansible would read for nobody."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        name = path.name if path.is_dir() else path.name.removesuffix(path.suffix)
        if path.name.startswith(".") or path.name.endswith("~") or name in map(str, known):
            continue
        close = nearest(name, map(str, known), otherwise="give it the name of one, or take it away")
        yield Finding(what=f"there is no {kind} '{name}'", where=str(path), mend=close)


def _variables_beside(
    folder: Path, name: str, keys: dict[str, Key], inventory: Inventory, *, on_node: bool = False
) -> dict[str, Any]:
    """The variables of group_vars/NAME.yml (or of the files in group_vars/NAME/)."""
    found: dict[str, Any] = {}
    files = [folder / f"{name}{end}" for end in ("", ".yml", ".yaml", ".json")]
    files += sorted(path for path in (folder / name).glob("*") if path.suffix in ("", ".yml", ".yaml", ".json"))
    for file in files:
        if file.is_file():
            values = load(file) or {}
            if not isinstance(values, dict):
                mend = "write 'name: value' lines, without a dash before them"
                inventory.findings.append(Finding(what="it is no mapping", where=str(file), mend=mend))
                continue
            _judge_keys(values, str(file), keys, inventory, on_node=on_node)
            found |= values
    return found


def _judge_keys(
    values: dict[str, Any], where: str, keys: dict[str, Key], inventory: Inventory, *, on_node: bool
) -> None:
    for name, value in values.items():
        key = keys.get(str(name))
        if key is None:
            inventory.findings.append(Finding(what=f"unknown key '{name}'", where=where, mend=nearest(str(name), keys)))
        elif key.on_node_only and not on_node:
            mend = "move it below the machine that it belongs to"
            inventory.findings.append(Finding(what=f"'{name}' differs from machine to machine", where=where, mend=mend))
        elif isinstance(value, str) and "{{" in value:
            continue  # a template: only Ansible knows its value
        elif name in SECRETS and not isinstance(value, Vaulted):
            mend = "take it out (it is asked for once); where it must be kept: ansible-vault encrypt_string"
            inventory.findings.append(Finding(what=f"'{name}' stands here in plain text", where=where, mend=mend))
        elif not key.accepts(value):
            what = f"{name} is {value!r}"
            inventory.findings.append(Finding(what=what, where=where, mend=f"it expects {key.expects}"))


def nearest(name: str, known: Any, *, otherwise: str = "all keys: docs/reference.md") -> str:
    """The sentence that names the valid key or word nearest to a misspelled one."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    if not close:  # `address` for `motley_address`
        close = [key for key in known if key.endswith("_" + name)][:1]
    return f"did you mean '{close[0]}'?" if close else otherwise


def _names(nodes: dict[str, dict[str, Any]], where: str) -> Iterator[Finding]:
    for name in nodes:
        if name.lower() in RESERVED or name.startswith("ip6-"):
            yield Finding(what=f"the name '{name}' is reserved", where=where, mend="choose another, such as gpu-master")
        elif not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name) or name.isdigit():
            mend = "use small letters, digits and hyphens, at most 63, not digits alone: " + _mended(name)
            yield Finding(what=f"'{name}' cannot be a machine's name", where=where, mend=mend)


def _mended(name: str) -> str:
    clean = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:63]
    return f"node-{clean or 1}" if clean.isdigit() or not clean else clean


def _addresses(nodes: dict[str, dict[str, Any]], where: str) -> Iterator[Finding]:
    for name, values in nodes.items():
        if "motley_address" not in values:
            mend = "add the address that it shall have: motley_address: 192.168.1.…"
            yield Finding(what="motley_address is missing", where=f"{where}, {name}", mend=mend)
    for key in ("motley_address", "motley_current_address", "motley_mac"):
        owners: dict[str, list[str]] = defaultdict(list)
        for name, values in nodes.items():
            if key in values:
                owners[str(values[key]).lower()].append(name)
        for value, names in owners.items():
            if len(names) > 1:
                what = f"{' and '.join(names)} have the same {key}, {value}"
                yield Finding(what=what, where=where, mend="give each its own")
    for name, other in _squatters(nodes):
        mend = f"give {name} another one, or give {other} a new motley_address as well"
        what = f"{name} is to have {nodes[name]['motley_address']}, where {other} answers and stays"
        yield Finding(what=what, where=where, mend=mend)


def _squatters(nodes: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Nodes whose wanted address another node uses today and will not leave (two that swap are fine)."""
    for name, values in nodes.items():
        for other, theirs in nodes.items():
            today = theirs.get("motley_current_address")
            stays = theirs.get("motley_static_ip_manage") is False
            if other != name and today and today == values.get("motley_address") and stays:
                yield name, other


def _networks(nodes: dict[str, dict[str, Any]], where: str) -> Iterator[Finding]:
    for name, values in nodes.items():
        if values.get("motley_manage_host") is False:
            continue
        for key in ("motley_subnet", "motley_gateway"):
            if key not in values:
                yield Finding(what=f"{key} is missing", where=f"{where}, vars", mend=f"it expects {KEYS[key].expects}")
        subnet, gateway, address = (values.get(f"motley_{part}") for part in ("subnet", "gateway", "address"))
        if not _is_network(subnet):
            return
        network = ipaddress.IPv4Network(str(subnet))
        for other, whose in NO_LAN.items():
            if network.overlaps(ipaddress.IPv4Network(other)) and not is_local(values):
                mend = "write the network between your machines and the router: `ip route` on one of them shows it"
                yield Finding(what=f"{network} is no home network but {whose}", where=f"{where}, vars", mend=mend)
                return
        for server in values.get("motley_dns") or []:
            if str(server).startswith("127."):
                what = f"motley_dns: {server} is each machine itself"
                yield Finding(what=what, where=f"{where}, vars", mend=f"write your router's: {gateway}")
        if _is_address(gateway) and ipaddress.IPv4Address(str(gateway)) not in network:
            mend = (
                "your router's address lies inside your network; `ip route` on any machine shows it after 'default via'"
            )
            yield Finding(what=f"the gateway {gateway} is outside {network}", where=f"{where}, vars", mend=mend)
        if _is_address(address):
            yield from _address_fits(str(address), str(gateway), network, f"{where}, {name}")


def _address_fits(address: str, gateway: str, network: ipaddress.IPv4Network, where: str) -> Iterator[Finding]:
    number = ipaddress.IPv4Address(address)
    free = f"choose one from {network[1]} to {network[-2]} that nobody else has"
    if address == gateway:
        yield Finding(what=f"{address} is the gateway's address", where=where, mend=free)
    elif number == network.broadcast_address:
        yield Finding(what=f"{address} is the broadcast address of {network}", where=where, mend=free)
    elif number == network.network_address:
        yield Finding(what=f"{address} is the network's own address", where=where, mend=free)
    elif number not in network:
        yield Finding(what=f"{address} is outside {network}", where=where, mend=f"{free}, or correct motley_subnet")


def _heads(nodes: dict[str, dict[str, Any]], where: str) -> Iterator[Finding]:
    heads = [name for name, values in nodes.items() if values.get("motley_role") == "head"]
    if len(heads) > 1:
        what = f"there are two heads: {' and '.join(heads)}"
        yield Finding(what=what, where=where, mend="one is the head: the machine listed first")
    elif heads and heads[0] != next(iter(nodes)):
        what = f"{heads[0]} is called head, but {next(iter(nodes))} is listed first"
        yield Finding(what=what, where=where, mend=f"move {heads[0]} to the top")


def _cards(nodes: dict[str, dict[str, Any]], where: str) -> Iterator[Finding]:
    for name, values in nodes.items():
        card = str(values.get("motley_gpu", "none"))
        reason = cards.unserved(card)
        if reason:
            mend = "take the machine out, or write motley_gpu: none to train on its processor"
            yield Finding(what=f"{card} {reason}", where=f"{where}, {name}", mend=mend)


def _guarded_ssh(nodes: dict[str, dict[str, Any]], where: str) -> Iterator[Finding]:
    defaults = load(Path(__file__).parents[1] / "roles/motley_firewall/defaults/main.yml")
    for name, values in nodes.items():
        known = {**defaults, **values}
        ranges = [known["motley_firewall_ports"]]
        ranges += [known["motley_firewall_high_ports"]] if known["motley_firewall_guard_high_ports"] else []
        port = values.get("ansible_port", 22)
        hit = [word for word in map(str, ranges) if _is_port(port) and _within(port, word)]
        if hit and known["motley_firewall_manage"]:
            what = f"SSH's port {port} lies in {hit[0]}, which the firewall guards"
            mend = "it stays open to all, as every port where sshd listens; what else listens there does not"
            yield Finding(what=what, where=f"{where}, {name}", mend=mend)


def _within(port: int, word: str) -> bool:
    low, _, high = word.partition("-")
    return low.isdecimal() and high.isdecimal() and int(low) <= port <= int(high)


def _homes(nodes: dict[str, dict[str, Any]], where: str) -> Iterator[Finding]:
    """A node that is a folder of this machine has no units."""
    for values in nodes.values():
        home = values.get("motley_home", HOME)
        if not (is_local(values) or is_folder(home) or "{{" in str(home)):
            what = f"motley_home is {home!r}, which units and shells would take apart"
            yield Finding(what=what, where=where, mend=f"it expects {FOLDER_RULE}")


def _ports(nodes: dict[str, dict[str, Any]], where: str) -> Iterator[Finding]:
    for values in nodes.values():
        first, last = ports_of(values.get("motley_firewall_ports", GUARDED)) or PORTS_IN_USE
        ssh = values.get("ansible_port", 22)
        if values.get("motley_firewall_manage") is False or is_local(values):
            continue
        if _is_port(ssh) and first <= ssh <= last:
            mend = "let sshd listen on another, or choose other motley_firewall_ports"
            yield Finding(what=f"SSH's port {ssh} is one of a run's, {first}-{last}", where=where, mend=mend)
        if not ((first <= PORTS_IN_USE[0] and PORTS_IN_USE[1] <= last) or any(key in values for key in MOVED_PORTS)):
            what = (
                f"runs need the ports {PORTS_IN_USE[0]} to {PORTS_IN_USE[1]}, motley_firewall_ports is {first}-{last}"
            )
            yield Finding(what=what, where=f"{where}, vars", mend="take it out, or widen it")


def _rollback(nodes: dict[str, dict[str, Any]], where: str) -> Iterator[Finding]:
    """A node must still wait when the controller has found it."""
    for values in nodes.values():
        waits, looks = (
            values.get(f"motley_static_ip_{key}_s", usual) for key, usual in (("rollback", 60), ("reconnect", 25))
        )
        if all(isinstance(number, (int, float)) for number in (waits, looks)) and not 0 < looks < waits:
            what = f"a node takes the change back after {waits} s, and the controller looks for it for {looks} s"
            mend = "motley_static_ip_rollback_s must be the larger one (usual: 60 and 25)"
            yield Finding(what=what, where=f"{where}, vars", mend=mend)


def _sets(nodes: dict[str, dict[str, Any]], where: str) -> Iterator[Finding]:
    locked = {"node-cpu", "node-gpu", "node-gpu-r570", "unsloth"}
    wanted = {name: values.get("motley_python_env_sets") or [] for name, values in nodes.items()}
    if not all(isinstance(sets, list) for sets in wanted.values()):
        return
    first = next(iter(wanted))
    for name, sets in wanted.items():
        if wanted[first] != sets:
            mend = "write the same for all, below vars: a run cannot mix them"
            yield Finding(what=f"motley_python_env_sets differs between {first} and {name}", where=where, mend=mend)
            return
    if "motley_python_env_requirements" in nodes[first]:  # locks of one's own
        return
    for unknown in [entry for entry in wanted[first] if entry not in locked]:
        mend = nearest(str(unknown), sorted(locked), otherwise=f"there are: {', '.join(sorted(locked))}")
        yield Finding(what=f"there is no locked set '{unknown}'", where=f"{where}, vars", mend=mend)
        return
    if wanted[first] and sum(str(entry).startswith("node-") for entry in wanted[first]) != 1:
        mend = "one of them is node-cpu, node-gpu or node-gpu-r570"
        yield Finding(what=f"motley_python_env_sets is {wanted[first]}", where=f"{where}, vars", mend=mend)


def _logins(nodes: dict[str, dict[str, Any]], where: str) -> Iterator[Finding]:
    missing = [name for name, values in nodes.items() if not ("ansible_user" in values or is_local(values))]
    if missing:
        mend = "add below vars: 'ansible_user: NAME', the name with which you log in on the machines"
        yield Finding(what=f"nobody is named to log in on {', '.join(missing)}", where=where, mend=mend)
