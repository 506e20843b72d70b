"""Which keys an inventory may have, and what each accepts.

Those below, and the variables that the roles declare in their meta/argument_specs.yml: a new role's settings are known
here by themselves.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from console import infra
from console.inventory.what_is_wrong import Finding, nearest
from console.strict_yaml import Vaulted, load
from train.errors import BadInput
from train.layout import HOME, PORTS
from train.plan.settings.step_aside_rules import IN_USE, ON_BATTERY, windows

ADDRESS = "an IPv4 address such as 192.168.1.100"
FOLDER = re.compile(r"~?(/[\w.+@-]+)+/?")
FOLDER_RULE = f"a folder such as {HOME} or /srv/cluster, of letters, digits and . _ + @ - alone"
GUARDED = f"{PORTS[0]}-{PORTS[1]}"
PASSWORDS = ("ansible_password", "ansible_become_password", "ansible_ssh_pass", "ansible_sudo_pass")
SECRETS = ("motley_hub_token", "motley_notify")
Variables = dict[str, object]
"""What somebody wrote for a machine or a group; a value may be of any type."""
Nodes = Mapping[str, Variables]
"""Name → all variables of the machine."""


@dataclass(frozen=True, slots=True)
class Key:
    expects: str
    accepts: Callable[[Any], bool]
    on_node_only: bool = False


def is_address(value: Any) -> bool:
    try:
        ipaddress.IPv4Address(value if isinstance(value, str) else "")
    except ValueError:
        return False
    return True


def is_network(value: Any) -> bool:
    try:
        network = ipaddress.IPv4Network(value if isinstance(value, str) else "")
    except ValueError:
        return False
    return "/" in str(value) and network.prefixlen <= 30


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_words(value: Any) -> bool:
    try:
        return _is_text(value) and bool(shlex.split(value))
    except ValueError:  # a quote that does not end
        return False


def is_folder(value: Any) -> bool:
    """A folder on a node that systemd's units, shells and ssh all take as it is written."""
    return isinstance(value, str) and FOLDER.fullmatch(value) is not None and ".." not in value.split("/")


def _is_addresses(value: Any) -> bool:
    return isinstance(value, list) and all(is_address(item) for item in value)


def _is_mac(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}", value) is not None


def is_port(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536


def _is_amount(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def _is_currency(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[^\W\d_]{1,4}|[^\w\s]", value) is not None


def _is_whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_hours(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(windows(value))
    except BadInput:
        return False


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(_is_text(item) for item in value)


def _is_ports(value: Any) -> bool:
    return ports_of(value) is not None


def ports_of(value: Any) -> tuple[int, int] | None:
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", value) if isinstance(value, str) else None
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    return (first, last) if 1024 <= first < last < 65536 else None


def _one_of(choices: list[Any]) -> Key:
    return Key("one of " + ", ".join(map(str, choices)), lambda value: value in choices)


KEYS: dict[str, Key] = {
    "infra": _one_of([*infra.NAMES]),
    "motley_address": Key(ADDRESS, is_address, on_node_only=True),
    "motley_current_address": Key(ADDRESS, is_address, on_node_only=True),
    "motley_mac": Key('a network card\'s address in quotes, such as "3c:7c:3f:00:00:01"', _is_mac, on_node_only=True),
    "motley_gpu": Key("a card's name such as RTX 4070, or none", _is_text, on_node_only=True),
    "motley_kwh_price": Key("a number such as 0.32", _is_amount),
    "motley_currency": Key("the price's currency, such as € or EUR", _is_currency),
    "motley_idle_watts": Key("a number such as 55", _is_amount),
    "motley_power_limit_w": Key("whole watts from 30 to 1000, such as 250", lambda value: _is_whole(value, 30, 1000)),
    "motley_max_celsius": Key("whole degrees from 50 to 100, such as 75", lambda value: _is_whole(value, 50, 100)),
    "motley_hours": Key('when it may train, such as "22:00-07:00", in quotes', _is_hours),
    "motley_on_battery": _one_of([*ON_BATTERY]),
    "motley_step_aside": _one_of([*IN_USE]),
    "motley_step_aside_programs": Key("a list of programs such as [blender]", _is_names),
    "motley_role": Key("head or worker", lambda value: value in ("head", "worker"), on_node_only=True),
    "motley_subnet": Key("your network with its size, such as 192.168.1.0/24", is_network),
    "motley_gateway": Key(ADDRESS, is_address),
    "motley_dns": Key("a list of addresses such as [192.168.1.1], or []", _is_addresses),
    "motley_state": Key("a folder on the controller", _is_text),
    "motley_state_folder": Key("a folder on the controller", _is_text),
    "motley_home": Key("a folder on the node", _is_text),
    "motley_manage_host": Key("true or false", lambda value: isinstance(value, bool)),
    "ansible_user": Key("a login name", _is_text),
    "ansible_port": Key("a port number", is_port),
    "ansible_host": Key("an address or name", _is_text),
    "ansible_python_interpreter": Key("a path on the node", _is_text),
    "ansible_ssh_private_key_file": Key("a path on the controller", _is_text),
    "ansible_ssh_common_args": Key("options for ssh", _is_words),
    "ansible_ssh_extra_args": Key("options for ssh", _is_words),
    "ansible_control_path": Key("a path pattern", _is_text),
    "ansible_connection": Key("ssh or local", lambda value: value in ("ssh", "local")),
    # No role declares motley_hub_token (of the Hugging Face hub) and motley_notify: that would unlock them everywhere.
    **{
        name: Key("a value made by ansible-vault", lambda value: isinstance(value, Vaulted))
        for name in (*PASSWORDS, *SECRETS)
    },
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
KEYS |= {name: TYPES[kind] for each in infra.NAMES for name, kind in infra.about(each).keys.items()}


# What a type alone does not say.
SHAPES = {
    "motley_firewall_ports": Key(f"FIRST-LAST, such as {GUARDED}, from 1024 to 65535", _is_ports),
    "motley_firewall_high_ports": Key(f"FIRST-LAST, such as {GUARDED}, from 1024 to 65535", _is_ports),
}


def role_keys(roles: Path) -> dict[str, Key]:
    """Every `motley_…` variable that a role declares, with its type; but for what one role finds for another."""
    keys: dict[str, Key] = {}
    specs = sorted(roles.glob("*/meta/argument_specs.yml"))
    for spec in specs:
        options = load(spec)["argument_specs"]["main"].get("options", {})
        others = tuple(f"{other.parts[-3]}_" for other in specs if other != spec)
        for name, option in options.items():
            if name.startswith(others):
                continue
            choices = option.get("choices")
            keys[name] = _one_of(choices) if choices else TYPES[option.get("type", "str")]
    return keys | SHAPES


def judge_keys(values: Variables, where: str, keys: dict[str, Key], *, on_node: bool) -> Iterator[Finding]:
    for name, value in values.items():
        key = keys.get(str(name))
        if key is None:
            yield Finding(what=f"unknown key '{name}'", where=where, fix=nearest(str(name), keys))
        elif key.on_node_only and not on_node:
            fix = "move it below the machine that it belongs to"
            yield Finding(what=f"'{name}' differs from machine to machine", where=where, fix=fix)
        elif isinstance(value, str) and "{{" in value:
            continue  # a template: only Ansible knows its value
        elif name in SECRETS and not isinstance(value, Vaulted):
            fix = f".venv/bin/ansible-vault encrypt_string --stdin-name {name}, and put here what it prints"
            yield Finding(what=f"'{name}' stands here in plain text", where=where, fix=fix)
        elif name in PASSWORDS and not isinstance(value, Vaulted):
            fix = "take it out (it is asked for once); where it must be kept: .venv/bin/ansible-vault encrypt_string"
            yield Finding(what=f"'{name}' stands here in plain text", where=where, fix=fix)
        elif not key.accepts(value):
            yield Finding(what=f"{name} is {value!r}", where=where, fix=f"it expects {key.expects}")
