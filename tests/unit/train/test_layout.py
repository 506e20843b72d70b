"""The ports that a run uses by itself are those that the roles let people change, and that the firewall opens."""

from pathlib import Path
from typing import Any

import yaml

from train.layout import GROUP_PORTS, HEARTBEAT_PORT, PORTS, PORTS_IN_USE

ROLES = Path(__file__).parents[3] / "roles"


def default(role: str, name: str) -> Any:
    return yaml.safe_load((ROLES / role / "defaults/main.yml").read_text())[f"{role}_{name}"]


def test_the_roles_defaults_are_the_ports_of_runs():
    assert default("motley_render", "presence_port") == HEARTBEAT_PORT == PORTS_IN_USE[0]
    assert default("motley_render", "group_ports") == list(GROUP_PORTS)
    assert default("motley_firewall", "ports") == "{}-{}".format(*PORTS)
    others = [default("motley_artifacts", "port"), default("motley_proof", "port"), default("motley_doctor", "port")]
    assert max(*others, default("motley_doctor", "collective_port")) == PORTS_IN_USE[1] <= PORTS[1]
