"""Reads netplan's files: their words are what netplan takes them for, and a file that it refuses is named. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import yaml

SECTIONS = ("ethernets", "wifis", "bonds", "bridges", "vlans")

Data = dict[str, Any]


def join(earlier: Data, later: Data) -> Data:
    """As netplan joins the files: lists become longer, what is below a key is joined too, all else is the later one."""
    joined = {**earlier, **{key: value for key, value in later.items() if value is not None or key not in earlier}}
    for key in earlier.keys() & later.keys():
        match earlier[key], later[key]:
            case dict() as before, dict() as after:
                joined[key] = join(before, after)
            case list() as before, list() as after:
                joined[key] = [*before, *(value for value in after if value not in before)]
    return joined


def address_of(written: Any) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    return ipaddress.ip_interface(next(iter(written)) if isinstance(written, dict) else str(written))


class _AsNetplan(yaml.SafeLoader):
    """Takes words for what netplan takes them for. In YAML 1.1 a password 01234567 would be the number 342391, a Wi-Fi
    network called on would be true, and a MAC 52:54:00:12:34:56 a number to the base of 60."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  as its base declares it

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A key that is written twice counts twice, as if each stood in a file of its own."""
        mapping: Any = {}
        for key, value in node.value:
            mapping = join(mapping, {self.construct_object(key): self.construct_object(value, deep=True)})
        return dict(mapping)


for _tag, _words in {"null": "~|null|", "bool": "true|false", "int": "0|[1-9][0-9]*"}.items():
    _AsNetplan.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_words})$"), None)


def load(text: str) -> Any:
    return yaml.load(text, Loader=_AsNetplan) or {}  # noqa: S506  a SafeLoader


def read(text: str) -> tuple[Any, str]:
    """What a file of netplan's holds; or why it is none, as netplan would find."""
    try:
        document = load(text)
        odd = next(misshapen(document), "")
    except yaml.MarkedYAMLError as wrong:
        line = f"line {wrong.problem_mark.line + 1}: " if wrong.problem_mark else ""
        return {}, f"{line}{wrong.problem}"
    except (yaml.YAMLError, ValueError) as wrong:
        return {}, str(wrong).partition("\n")[0]
    return document, f"{odd} is written in another form than netplan's" if odd else ""


def misshapen(document: Any) -> Iterator[str]:
    """What holds another kind of thing than netplan has there; ValueError names an address that is none."""
    network = (document.get("network") if isinstance(document, dict) else document) or {}
    if not isinstance(network, dict):
        yield "network"
        return
    for kind in SECTIONS:
        devices = network.get(kind) or {}
        if not isinstance(devices, dict):
            yield str(kind)
            continue
        for device, stanza in devices.items():
            if device != "renderer" and not isinstance(stanza or {}, dict):
                yield str(device)
            elif device != "renderer":
                keys = (stanza or {}).keys() & SHAPES.keys()
                yield from (f"{key} of {device}" for key in sorted(keys) if not SHAPES[key](stanza[key]))


def _are(kind: type | tuple[type, ...]) -> Callable[[Any], bool]:
    return lambda value: value is None or (isinstance(value, list) and all(isinstance(one, kind) for one in value))


def _is_map(value: Any) -> bool:
    return isinstance(value or {}, dict)


SHAPES: dict[str, Callable[[Any], bool]] = {
    "addresses": lambda value: _are((str, dict))(value) and all(map(address_of, value or [])),
    "routes": _are(dict),
    "nameservers": lambda value: _is_map(value) and all(map(_are(str), (value or {}).values())),
    **dict.fromkeys(("match", "access-points", "networkmanager"), _is_map),
}
