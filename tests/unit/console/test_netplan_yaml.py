"""netplan's files as netplan reads them: what it refuses, and what it takes that YAML alone would not."""

from __future__ import annotations

import pytest

from console.netplan_yaml import read


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("network:\n  version: 2\n\tethernets: {enp5s0: {dhcp4: true}}\n", "line 3: found character '\\t'"),
        ("network:\n  ethernets:\n    enp5s0: {dhcp4: true}\n   enp6s0: {}\n", "line 4: expected <block end>"),
        ("network: {version: 2}\n---\nnetwork: {}\n", "line 2: but found another document"),
        ("network: {}\n\x00", "unacceptable character #x0000"),
        ("- network\n", "network is written in another form"),
        ("network: {ethernets: enp5s0}", "ethernets is written"),
        ("network: {ethernets: {enp5s0: dhcp}}", "enp5s0 is written"),
        ("network: {ethernets: {enp6s0: {addresses: 10.0.0.2/24}}}", "addresses of enp6s0 is written"),
        ("network: {wifis: {wlp2s0: {access-points: [Home]}}}", "access-points of wlp2s0 is written"),
        ("network: {ethernets: {enp5s0: {routes: [192.168.1.1]}}}", "routes of enp5s0 is written"),
        ("network: {ethernets: {enp5s0: {nameservers: {addresses: 1.1.1.1}}}}", "nameservers of enp5s0 is written"),
        ("network: {ethernets: {enp5s0: {addresses: [192.168.1.300/24]}}}", "'192.168.1.300/24' does not appear to be"),
    ],
)
def test_what_netplan_refuses_is_said_with_its_place(text: str, why: str) -> None:
    assert read(text)[1].startswith(why)


def test_a_key_that_is_written_twice_counts_twice_as_netplan_has_it() -> None:
    text = """
network:
  ethernets:
    enp6s0: {addresses: [10.0.0.2/24]}
  ethernets:
    enp5s0: {dhcp4: true}
    enp6s0: {addresses: [10.0.0.3/24]}
    enp5s0: {mtu: 9000}
"""
    both = {"enp6s0": {"addresses": ["10.0.0.2/24", "10.0.0.3/24"]}, "enp5s0": {"dhcp4": True, "mtu": 9000}}
    assert read(text) == ({"network": {"ethernets": both}}, "")
