"""cluster_config.yaml: who trains together, at which addresses. `to_text` alone writes it, for every infra; a person
can write it by hand. On a node it is also read without YAML: runlog/last_launch.py.

The token that the agents share is in secret.json beside it: {"token": "5f…"}.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from train.errors import BadInput
from train.layout import GROUP_PORTS, HEARTBEAT_PORT
from train.plan.placement.pipeline_split import Room
from train.plan.run_name import RULE, is_name
from train.plan.settings.read_settings import nearest, read_yaml
from train.plan.settings.step_aside_rules import AsideRules, rules
from train.runlog import paths
from train.runlog.last_launch import as_lines
from train.runlog.secret import secret_of

ABOUT = {
    "run": "Who trains together; written by Motley, and read by the agent of this node (python -m train agent).",
    "nodes": "The agreed order, the head first; the same on every node.",
    "aside": "When it steps aside by itself. Whoever sits there: an empty file `pause` beside config/ does it at once.",
    "interface": "The route to the others, as the kernel sees it (ip route get).",
    "pipe": "Layers of the model, their size, and how many each process can hold; with too few left it waits.",
    "limits": "What its graphics card may draw, and how hot it may get, in this run; motley-run.service sets both.",
    "presence_port": "Agents talk here, each group of processes takes a port of its own; the nodes alone reach both.",
}
"""What a person who opens the file reads above a line."""
NODE_KEYS = ("name", "address", "processes")
LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
HOST_NAME = re.compile(rf"(?=.{{1,253}}$)(?=.*[a-z])({LABEL}\.)*{LABEL}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    name: str
    address: str
    processes: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterConfig:
    run: str
    node: str
    token: str = ""
    """One launch's secret: agents without it are not ours."""
    nodes: tuple[Member, ...]
    interface: str = ""
    presence_port: int = HEARTBEAT_PORT
    group_ports: tuple[int, int] = GROUP_PORTS
    aside: AsideRules = field(default_factory=AsideRules)
    pipe: Room | None = None
    """How many layers each process of a node can hold, for a model that is cut over the nodes."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """The watts and the degrees Celsius of its graphics cards in this run: templates/motley-card.sh.j2 sets them."""

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)

    @property
    def room(self) -> Room | None:
        """How many layers each whole node can hold."""
        if self.pipe is None:
            return None
        held = {node.name: node.processes * self.pipe.of([node.name]) for node in self.nodes}
        return replace(self.pipe, holds=held)

    def of(self, name: str) -> Member:
        return next(node for node in self.nodes if node.name == name)

    def to_text(self) -> str:
        usual = asdict(AsideRules())
        facts = asdict(replace(self, token=""))
        facts["aside"] = {name: value for name, value in facts["aside"].items() if value != usual[name]}
        return as_lines({name: value for name, value in facts.items() if value}, ABOUT)


def read_cluster(file: Path) -> ClusterConfig:
    values = read_yaml(file, "cluster file")
    known = ClusterConfig.__dataclass_fields__
    for key in values:
        if key not in known or key == "token":
            raise BadInput(f"unknown key '{key}'{nearest(str(key), known)}", f"file: {file}")
    secret = file.with_name(Path(paths.SECRET).name)
    if not (token := secret_of(secret).token):
        raise BadInput("token: a word is missing", f"file: {secret}", "./motley launch writes it again")
    try:
        return replace(checked(values), token=token)
    except BadInput as error:
        raise BadInput(str(error), f"file: {file}", "./motley launch writes it again") from None


def checked(values: Mapping[str, Any]) -> ClusterConfig:
    for key in ("run", "node"):
        if not isinstance(values.get(key), (str, int)) or not str(values[key]):
            raise BadInput(f"{key}: a word is missing")
    nodes = values.get("nodes")
    if not isinstance(nodes, list) or not nodes:
        raise BadInput("nodes: a list of {name, address, processes} is missing")
    members = tuple(_node(entry) for entry in nodes)
    for what in ("name", "address"):
        texts = [getattr(node, what) for node in members]
        if twice := sorted({text for text in texts if texts.count(text) > 1}):
            raise BadInput(f"nodes: the {what} {twice[0]} stands there twice")
    names = [node.name for node in members]
    if str(values["node"]) not in names:
        raise BadInput(f"node: '{values['node']}' is none of nodes{nearest(str(values['node']), names)}")
    run = str(values["run"])
    if not is_name(run):
        raise BadInput(f"run: '{run}' cannot name a run; use {RULE}")
    return ClusterConfig(
        run=run,
        node=str(values["node"]),
        nodes=members,
        interface=str(values.get("interface") or ""),
        presence_port=_port("presence_port", values.get("presence_port", HEARTBEAT_PORT)),
        group_ports=_ports(values.get("group_ports", list(GROUP_PORTS))),
        aside=rules(values.get("aside") or {}),
        pipe=_room(values.get("pipe"), names),
        limits=values.get("limits") or {},
    )


def _room(value: Any, names: list[str]) -> Room | None:
    if value is None:
        return None
    try:
        holds = {str(name): int(count) for name, count in dict(value["holds"]).items()}
        room = Room(int(value["layers"]), int(value["layer_bytes"]), holds)
    except (KeyError, TypeError, ValueError):
        raise BadInput("pipe: it is not {layers, layer_bytes, holds: {NODE: LAYERS}}") from None
    for name in holds:
        if name not in names:
            raise BadInput(f"pipe: '{name}' is none of nodes{nearest(name, names)}")
    return room


def _node(entry: Any) -> Member:
    if not isinstance(entry, dict):
        raise BadInput(f"nodes: '{entry}' is not {{name, address, processes}}")
    for key in entry:
        if key not in NODE_KEYS:
            raise BadInput(f"nodes: unknown key '{key}'{nearest(str(key), NODE_KEYS)}")
    name, processes = str(entry.get("name") or ""), entry.get("processes", 1)
    if not name:
        raise BadInput("nodes: a node has no name")
    address = str(entry.get("address") or "")
    if not HOST_NAME.fullmatch(address):
        try:
            address = str(ipaddress.ip_address(address))
        except ValueError:
            what = f"nodes: {name}: '{entry.get('address')}' is neither an address nor a name in small letters"
            raise BadInput(what) from None
    if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
        raise BadInput(f"nodes: {name}: processes must be 1 or more, not '{processes}'")
    return Member(name=name, address=address, processes=processes)


def _port(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1024 <= value <= 65535:
        raise BadInput(f"{key}: '{value}' is not a port between 1024 and 65535")
    return value


def _ports(value: Any) -> tuple[int, int]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise BadInput("group_ports: two numbers are needed, the first and the last port")
    first, last = (_port("group_ports", port) for port in value)
    if first > last:
        raise BadInput(f"group_ports: {first} is above {last}")
    return first, last
