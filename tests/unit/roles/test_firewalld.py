"""What firewalld is told, where it is the machine's firewall: a real one is told it in tests/roles/test_ufw.py."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from pathlib import Path

import jinja2

TEMPLATE = Path(__file__).parents[3] / "roles/motley_firewall/templates/firewalld.xml.j2"
FRIENDS, PORTS = ["192.168.1.10", "192.168.1.11"], ["29400-29899", "32768-60999"]


def test_it_lets_each_friend_in_to_each_guarded_port_and_nobody_else() -> None:
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["product"] = itertools.product
    told = environment.from_string(TEMPLATE.read_text()).render(
        __motley_firewall_friends=FRIENDS, __motley_firewall_guarded=PORTS
    )
    policy = ET.fromstring(told.encode())
    rules = [[rule.find(name) for name in ("source", "port", "accept")] for rule in policy.findall("rule")]
    assert all(rule[2] is not None for rule in rules)
    assert [(rule[0].attrib["address"], rule[1].attrib["port"]) for rule in rules] == list(
        itertools.product(FRIENDS, PORTS)
    )
    assert policy.attrib["target"] == "CONTINUE", "what the owner's zones let in or keep out is as it was"
