"""What the firewall leaves open: SSH's own ports wherever they are, and the controller as the node sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from console.inventory.check import check
from plugins.filter import motley as filters
from plugins.module_utils.motley import listening_ports
from tests.support.readings import healthy, with_node
from tests.support.spoiled import only

GUARDED = ["29400-29899", "32768-60999"]


@pytest.mark.parametrize(
    ("ssh", "left"),
    [
        ([22], GUARDED),
        ([22, 52222], ["29400-29899", "32768-52221", "52223-60999"]),
        ([29400, 60999, 29899], ["29401-29898", "32768-60998"]),
        ([40000, 40001, 40003], ["29400-29899", "32768-39999", "40002-40002", "40004-60999"]),
    ],
)
def test_sshs_own_ports_are_not_guarded(ssh: list[int], left: list[str]) -> None:
    assert filters.motley_guarded(GUARDED, ssh) == left


SSHD = "port 22\nport 2222\naddressfamily any\nlistenaddress 0.0.0.0:22\nlistenaddress [::]:52222\nusedns no\n"
SOCKET = "Listen=0.0.0.0:52222 (Stream)\nListen=[::]:22 (Stream)\n\nListen=/run/x.sock (Stream)\n"
LISTENING = """\
LISTEN 0 128   0.0.0.0:2022  0.0.0.0:* users:(("sshd",pid=7,fd=3))
LISTEN 0 4096        *:52222       *:* users:(("sshd",pid=7,fd=4),("systemd",pid=1,fd=9))
LISTEN 0 50    0.0.0.0:51413 0.0.0.0:* users:(("transmission-da",pid=9,fd=3))
LISTEN 0 50       [::]:51413    [::]:* users:(("transmission-da",pid=9,fd=4))
LISTEN 0 4096  0.0.0.0:40000 0.0.0.0:* users:(("docker-proxy",pid=8,fd=4))
LISTEN 0 128 127.0.0.1:45001 0.0.0.0:* users:(("code",pid=3,fd=5))
LISTEN 0 128     [::1]:45002    [::]:* users:(("code",pid=3,fd=6))
LISTEN 0 4096 127.0.0.53%lo:53 0.0.0.0:* users:(("systemd-resolve",pid=2,fd=14))
LISTEN 0 64    0.0.0.0:2049  0.0.0.0:*
"""


def test_where_ssh_listens_is_asked_of_sshd_of_its_socket_and_of_the_kernel() -> None:
    assert listening_ports.ssh_ports_of(SSHD, SOCKET, LISTENING, "10.0.0.9 50000 10.0.0.1 22022") == [
        *(22, 2022, 2222, 22022, 52222),
    ]
    assert listening_ports.ssh_ports_of("", "", "", "") == [22], "where nobody says, the usual one"


def test_other_services_in_the_guarded_ranges_are_named() -> None:
    services = listening_ports.services_of(LISTENING, [22, 2022, 52222])
    assert services == [{"port": 2049, "program": "the kernel"}, {"port": 51413, "program": "transmission-da"}]
    said = filters.motley_guarded_services(services, GUARDED)
    assert said.startswith("transmission-da on port 51413 ") and "2049" not in said
    assert filters.motley_guarded_services(services, GUARDED[:1]) == ""


def test_a_caller_is_known_by_what_the_shell_above_sudo_was_started_with(tmp_path: Path) -> None:
    """As with sudo: the program itself no longer has the variable."""
    inner = [
        sys.executable,
        "-c",
        "from plugins.module_utils.motley import listening_ports; print(listening_ports.connection())",
    ]
    outer = f"import subprocess; subprocess.run({inner!r}, env={{}})"
    known = {"PATH": os.environ["PATH"], "SSH_CONNECTION": "10.0.0.11 50000 10.0.0.1 52222"}
    told = subprocess.run([sys.executable, "-c", outer], env=known, capture_output=True, text=True, check=True)
    assert told.stdout == "10.0.0.11 50000 10.0.0.1 52222\n"
    assert listening_ports.address_in(told.stdout) == "10.0.0.11"
    assert listening_ports.address_in("fe80::1 50000 fe80::2 22") == "", "friends are addresses of IPv4"


def test_before_a_relay_the_callers_address_is_compared_with_who_is_let_in() -> None:
    rules = "set friends {\n elements = { 10.0.0.1, 10.0.0.2, 10.0.0.9 }\n}\n"
    assert listening_ports.shut_out(f"{rules}from 10.0.0.11 50000 10.0.0.1 22") == "10.0.0.11"
    assert listening_ports.shut_out(f"{rules}from 10.0.0.9 50000 10.0.0.1 22") == ""
    assert listening_ports.shut_out("from 10.0.0.11 50000 10.0.0.1 22") == "", "no firewall of ours"
    assert listening_ports.shut_out(f"{rules}from ") == "", "nobody came by SSH"


def test_the_doctor_names_a_controller_that_is_shut_out() -> None:
    readings = healthy()
    for place, node in enumerate(readings.nodes):
        caller = "10.0.0.11" if place == 1 else "10.0.0.9"
        readings = with_node(readings, node.name, look=dict(node.look or {}) | {"caller": caller})
    finding = only(readings)
    assert (finding.probe, finding.node, finding.phase) == ("firewall", "left", "firewall")
    assert "keep out this controller (10.0.0.11)" in finding.what and finding.safe


def test_the_check_warns_where_ssh_is_in_a_guarded_range(tmp_path: Path) -> None:
    shared: dict[str, Any] = {"ansible_user": "anna", "motley_subnet": "10.0.0.0/24", "motley_gateway": "10.0.0.1"}

    def notes(**more: Any) -> list[str]:
        cluster = {"vars": shared | more, "hosts": {"one": {"motley_address": "10.0.0.2", "ansible_port": 52222}}}
        (tmp_path / "hosts.yml").write_text(json.dumps({"cluster": cluster}))
        found = check(tmp_path)
        assert not found.findings
        return [str(note) for note in found.notes]

    (note,) = notes()
    assert "52222" in note and "32768-60999" in note and "stays open" in note
    assert notes(motley_firewall_guard_high_ports=False) == []
    assert notes(motley_firewall_manage=False) == []
    assert notes(motley_firewall_high_ports="40000-50000") == []
