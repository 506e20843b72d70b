"""Reads an inventory: the YAML alone, without Ansible; what cannot be read is a finding."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.inventory.keys import Key, Variables, judge_keys
from console.inventory.what_is_wrong import Finding, nearest
from console.rent import rented_now
from console.strict_yaml import YamlError, load

GROUP = "cluster"
RENTED = "rented.yml"
"""What makes an inventory of leases (plugins/inventory/motley_rented.py)."""


@dataclass(kw_only=True, slots=True)
class Inventory:
    """A checked inventory, as far as it could be read; `nodes` in their order, each with all its variables."""

    path: Path
    nodes: dict[str, Variables] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    """Worth knowing, and nothing wrong."""

    @property
    def state(self) -> Path:
        """The controller's folder for this cluster: known_hosts, key, receipts."""
        root = Path(__file__).parents[2]
        for variables in self.nodes.values():
            named = str(variables.get("motley_state", ""))
            return Path(named) if named and "{{" not in named else root / ".motley"
        return root / ".motley"


def hosts_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    if (path / RENTED).exists():
        return path / RENTED
    return next((program for program in programs(path) if program.stem == "hosts"), path / "hosts.yml")


def programs(folder: Path) -> list[Path]:
    """What Ansible would run of an inventory's folder. We run hosts.sh alone: the folder may have been mistyped."""
    return [file for file in sorted(folder.iterdir()) if _is_program(file)] if folder.is_dir() else []


def _is_program(file: Path) -> bool:
    """Whether Ansible would run the file as a program: by its #!, as on some disks every file may be executed."""
    if file.name.startswith(".") or not (file.is_file() and os.access(file, os.X_OK)):  # as Ansible passes it over
        return False
    with file.open("rb") as content:
        return content.read(2) == b"#!"


def _load(hosts_file: Path) -> Any:
    if hosts_file.name == RENTED:
        return {GROUP: {"hosts": rented_now.hosts()}}
    return _printed_by(hosts_file) if _is_program(hosts_file) else load(hosts_file)


def _printed_by(program: Path) -> Any:
    """What a program (the lab's inventory) prints, in the shape of a file."""
    by_hand = "run it by hand to see why"
    try:
        done = subprocess.run([program.resolve(), "--list"], capture_output=True, text=True, check=False)
    except OSError as wrong:  # what stands behind its #! is not there
        raise YamlError(f"it cannot be run: {wrong.strerror}", str(program), by_hand) from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ended with exit code {done.returncode} and printed nothing"]
        raise YamlError(lines[0], str(program), " ".join(lines[1:]) or by_hand)
    try:
        printed = json.loads(done.stdout)
        group, hostvars = printed.get(GROUP, {}), printed["_meta"]["hostvars"]
        hosts = {name: hostvars.get(name) for name in group.get("hosts", [])}
        return {GROUP: {"vars": group.get("vars"), "hosts": hosts}}
    except (ValueError, LookupError, TypeError, AttributeError):
        fix = f'it prints JSON: {{"{GROUP}": {{"hosts": […]}}, "_meta": {{"hostvars": {{…}}}}}}'
        raise YamlError("what it prints is no inventory", str(program), fix) from None


def read(hosts_file: Path, inventory: Inventory, keys: dict[str, Key]) -> None:
    data = _load(hosts_file)
    group = _group(data)
    if group is None:
        fix = f"it begins with '{GROUP}:', below it 'vars:' and 'hosts:'; examples/hosts.yml is an example"
        inventory.findings.append(Finding(what=f"the group '{GROUP}' is missing", where=str(hosts_file), fix=fix))
        return
    shared: Variables = {}
    folder = hosts_file.parent
    for name in ("all", GROUP):
        shared |= _variables_beside(folder / "group_vars", name, keys, inventory)
    inventory.findings += _strangers(folder / "group_vars", _groups(data), "group")
    inventory.findings += _strangers(folder / "host_vars", list(_mapping(group.get("hosts"))), "machine")
    for part in ("vars", "hosts"):
        if not isinstance(group.get(part) or {}, dict):
            fix = "write 'name: value' lines below it, two spaces deeper, without a dash before them"
            inventory.findings.append(Finding(what=f"{part} is no mapping", where=str(hosts_file), fix=fix))
            return
    own = _mapping(group.get("vars"))
    inventory.findings += judge_keys(own, f"{hosts_file}, vars", keys, on_node=False)
    shared |= own
    for name, written in _mapping(group.get("hosts")).items():
        settings = written or {}
        if not isinstance(settings, dict):
            fix = "write its keys below it, one a line, two spaces deeper, with a space after each colon"
            inventory.findings.append(Finding(what="has no keys", where=f"{hosts_file}, {name}", fix=fix))
            continue
        inventory.findings += judge_keys(settings, f"{hosts_file}, {name}", keys, on_node=True)
        beside = _variables_beside(folder / "host_vars", str(name), keys, inventory, on_node=True)
        inventory.nodes[str(name)] = {**shared, **beside, **settings}
    if not inventory.nodes and hosts_file.name == RENTED:
        fix = './motley rent --gpu "RTX 4090" --hours 3 --max 0.50'
        inventory.findings.append(Finding(what="no machine is rented now", where=str(hosts_file), fix=fix))
    elif not inventory.nodes:
        fix = "name at least one machine below 'hosts:'"
        inventory.findings.append(Finding(what="there is no machine in it", where=str(hosts_file), fix=fix))


def _mapping(value: object) -> Variables:
    return value if isinstance(value, dict) else {}


def _group(data: object) -> Variables | None:
    top = _mapping(data).get(GROUP) or _mapping(_mapping(_mapping(data).get("all")).get("children")).get(GROUP)
    return top if isinstance(top, dict) else None


def _groups(data: object) -> list[str]:
    """All of the file, at whatever depth."""
    groups = ["all", "ungrouped"]
    for name, value in _mapping(data).items():
        groups += [str(name), *_groups(_mapping(value).get("children"))]
    return groups


def _strangers(folder: Path, known: list[Any], kind: str) -> Iterator[Finding]:
    """Files of variables that Ansible would read for nobody."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        name = path.name if path.is_dir() else path.name.removesuffix(path.suffix)
        if path.name.startswith(".") or path.name.endswith("~") or name in map(str, known):
            continue
        close = nearest(name, map(str, known), otherwise="give it the name of one, or take it away")
        yield Finding(what=f"there is no {kind} '{name}'", where=str(path), fix=close)


def _variables_beside(
    folder: Path, name: str, keys: dict[str, Key], inventory: Inventory, *, on_node: bool = False
) -> Variables:
    """The variables of group_vars/NAME.yml (or of the files in group_vars/NAME/)."""
    variables: Variables = {}
    files = [folder / f"{name}{end}" for end in ("", ".yml", ".yaml", ".json")]
    files += sorted(path for path in (folder / name).glob("*") if path.suffix in ("", ".yml", ".yaml", ".json"))
    for file in files:
        if file.is_file():
            values = load(file) or {}
            if not isinstance(values, dict):
                fix = "write 'name: value' lines, without a dash before them"
                inventory.findings.append(Finding(what="it is no mapping", where=str(file), fix=fix))
                continue
            inventory.findings += judge_keys(values, str(file), keys, on_node=on_node)
            variables |= values
    return variables
