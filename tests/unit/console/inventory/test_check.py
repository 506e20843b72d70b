"""Every finding of the inventory's check, all at once, with the edit that fixes it."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml

from console.__main__ import checked
from console.inventory.check import check
from tests.support import ROOT, pace
from tests.support.stand_ins import program
from train.errors import BadInput
from train.plan.machines import architectures

GOOD: dict[str, Any] = {
    "vars": {"ansible_user": "anna", "motley_subnet": "192.168.1.0/24", "motley_gateway": "192.168.1.1"},
    "hosts": {"one": {"motley_address": "192.168.1.10"}, "two": {"motley_address": "192.168.1.11"}},
}


def written(folder: Path, *, nodes: dict[str, Any] | None = None, **shared: Any) -> list[str]:
    """The findings about the good inventory with these changes, as text; None takes a variable out."""
    hosts = {name: GOOD["hosts"].get(name, {}) | keys for name, keys in {**GOOD["hosts"], **(nodes or {})}.items()}
    variables = {name: value for name, value in {**GOOD["vars"], **shared}.items() if value is not None}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"cluster": {"vars": variables, "hosts": hosts}}, sort_keys=False))
    return [str(finding) for finding in check(folder).findings]


def test_the_example_is_good_and_checked_in_a_moment() -> None:
    start = pace.now()
    inventory = check(ROOT / "examples/hosts.yml")
    assert inventory.findings == []
    assert list(inventory.nodes) == ["gpu-master", "gpu-worker-1", "gpu-worker-2"]
    assert pace.now() - start < 1


def test_a_fresh_checkout_describes_nobodys_machines(tmp_path: Path) -> None:
    """Shipped addresses would be somebody's: bootstrap and undo act on whoever answers there."""
    shipped = pace.run("git", "ls-files", "inventory/homelab", cwd=ROOT).stdout.split()
    assert shipped and all("group_vars" in name for name in shipped)
    (finding,) = check(tmp_path).findings
    assert "no machines are described yet" in str(finding) and "./motley inventory" in str(finding)


SWAP = {"one": {"motley_current_address": "192.168.1.11"}, "two": {"motley_current_address": "192.168.1.10"}}


@pytest.mark.parametrize(
    ("nodes", "shared"),
    [({}, {"motley_gateway": None}), (SWAP, {}), ({}, {"ansible_port": 29500, "motley_firewall_manage": False})],
    ids=["two PCs on one cable, without a router", "addresses that are swapped", "ssh where no firewall guards"],
)
def test_what_is_unusual_may_be_right(tmp_path: Path, nodes: dict[str, Any], shared: dict[str, Any]) -> None:
    assert written(tmp_path, nodes=nodes, **shared) == []


@pytest.mark.parametrize(
    ("nodes", "shared", "expected"),
    [
        ({"one": {"motley_adress": "192.168.1.9"}}, {}, "did you mean 'motley_address'?"),
        ({"one": {"address": "192.168.1.9"}}, {}, "did you mean 'motley_address'?"),
        ({}, {"motley_static_ip_mange": False}, "did you mean 'motley_static_ip_manage'?"),
        ({}, {"motley_static_ip_manage": "no"}, "it expects true or false"),
        ({"two": {"motley_address": "192.168.1.10"}}, {}, "one and two have the same motley_address"),
        ({"two": {"motley_address": "192.168.2.11"}}, {}, "192.168.2.11 is outside 192.168.1.0/24"),
        ({"two": {"motley_address": "192.168.1.1"}}, {}, "192.168.1.1 is the gateway's address"),
        ({"two": {"motley_address": "192.168.1.255"}}, {}, "is the broadcast address"),
        ({"two": {"motley_address": "192.168.1.0"}}, {}, "is the network's own address"),
        ({"two": {"motley_address": "192.168.1.300"}}, {}, "it expects an IPv4 address"),
        ({}, {"motley_gateway": "10.0.0.1"}, "the gateway 10.0.0.1 is outside"),
        ({"one": {"motley_role": "head"}, "two": {"motley_role": "head"}}, {}, "there are two heads: one and two"),
        ({"two": {"motley_role": "head"}}, {}, "two is called head, but one is listed first"),
        ({"localhost": {"motley_address": "192.168.1.12"}}, {}, "the name 'localhost' is reserved"),
        ({"Gpu_1": {"motley_address": "192.168.1.12"}}, {}, "'Gpu_1' cannot be a machine's name"),
        ({"one": {"motley_gpu": "GTX 1080 Ti"}}, {}, "GTX 1080 Ti is Pascal"),
        ({"one": {"motley_gpu": "Radeon RX 7900"}}, {}, "is no NVIDIA card"),
        ({"one": {"ansible_password": "secret"}}, {}, "stands here in plain text"),
        ({}, {"motley_address": "192.168.1.12"}, "differs from machine to machine"),
        ({"three": {}}, {}, "motley_address is missing"),
        (
            {"one": {"motley_address": "192.168.1.20"}, "two": {"motley_current_address": "192.168.1.20"}},
            {"motley_static_ip_manage": False},
            "where two answers and stays",
        ),
        ({"7": {"motley_address": "192.168.1.12"}}, {}, "not digits alone: node-7"),
        ({"two": {"motley_python_env_sets": ["node-gpu"]}}, {}, "motley_python_env_sets differs between one and two"),
        # what a phase would refuse
        ({}, {"motley_firewall_ports": "29400"}, "it expects FIRST-LAST"),
        ({}, {"motley_firewall_ports": "29899-29400"}, "it expects FIRST-LAST"),
        ({}, {"motley_firewall_ports": "500-900"}, "it expects FIRST-LAST"),
        ({}, {"motley_firewall_high_ports": "32768:60999"}, "it expects FIRST-LAST"),
        ({}, {"motley_firewall_ports": "29600-29899"}, "runs need the ports 29400 to 29893"),
        ({}, {"ansible_port": 29500}, "SSH's port 29500 is one of a run's"),
        ({}, {"motley_firewall_manage": "false"}, "true or false, without quotes"),
        ({}, {"motley_dns": ["127.0.0.53"]}, "127.0.0.53 is each machine itself"),
        ({}, {"motley_static_ip_reconnect_s": 60}, "takes the change back after 60 s"),
        ({}, {"motley_static_ip_rollback_s": 0}, "takes the change back after 0 s"),
        ({}, {"motley_python_env_sets": ["node-gpu-r57"]}, "did you mean 'node-gpu-r570'?"),
        ({}, {"motley_python_env_sets": [{"node-gpu": None}]}, "there is no locked set '{'node-gpu': None}'"),
        ({}, {"motley_python_env_sets": ["unsloth"]}, "one of them is node-cpu, node-gpu or node-gpu-r570"),
    ],
)
def test_a_finding_says_its_fix(tmp_path: Path, nodes: dict[str, Any], shared: dict[str, Any], expected: str) -> None:
    (finding,) = written(tmp_path, nodes=nodes, **shared)
    assert expected in finding


@pytest.mark.parametrize("subnet", ["100.64.0.0/16", "127.0.0.0/24", "169.254.0.0/16", "224.0.0.0/24", "240.0.0.0/24"])
def test_a_network_that_is_no_lan_is_refused(tmp_path: Path, subnet: str) -> None:
    base = subnet.rpartition(".")[0]
    nodes = {"one": {"motley_address": f"{base}.10"}, "two": {"motley_address": f"{base}.11"}}
    (finding,) = written(tmp_path, nodes=nodes, motley_subnet=subnet, motley_gateway=f"{base}.1")
    assert "is no home network" in finding


def test_all_findings_come_at_once(tmp_path: Path) -> None:
    nodes = {"one": {"motley_adress": "x"}, "two": {"motley_address": "192.168.1.1", "motley_gpu": "Tesla V100"}}
    assert len(written(tmp_path, nodes=nodes, motley_dns="192.168.1.1")) == 4


HOSTS = """\
cluster:
  vars: {ansible_user: a, motley_subnet: 192.168.1.0/24, motley_gateway: 192.168.1.1}
  hosts:
    one: {motley_address: 192.168.1.10}
"""
TEMPLATE = "cluster:\n  motley_home: {{ my_home }}\n"
QUOTES = 'yml:2: a mapping stands where a name belongs\n    put a value that begins with {{ into quotes: "{{ … }}"'


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("hosts.yml", "", "the group 'cluster' is missing"),
        ("hosts.yml", "hosts:\n", "the group 'cluster' is missing"),
        ("hosts.yml", "- a\n", "the group 'cluster' is missing"),
        ("hosts.yml", "cluster: [one]\n", "the group 'cluster' is missing"),
        ("hosts.yml", "all: [1]\n", "the group 'cluster' is missing"),
        ("hosts.yml", "all:\n  children: 3\n", "the group 'cluster' is missing"),
        ("hosts.yml", "cluster:\n\thosts: {}\n", "hosts.yml:2: this is not YAML"),
        ("hosts.yml", "cluster:\n  hosts:\n", "there is no machine in it"),
        ("hosts.yml", "cluster:\n  vars: [a]\n  hosts:\n    one: {}\n", "vars is no mapping"),
        ("hosts.yml", "cluster:\n  hosts: [one, two]\n", "hosts is no mapping"),
        ("hosts.yml", "cluster:\n  hosts: one\n", "hosts is no mapping"),
        ("hosts.yml", "cluster:\n  hosts:\n    one: {}\n    one: {}\n", "twice, in lines 3 and 4\n    keep one"),
        ("hosts.yml", TEMPLATE, QUOTES),
        ("group_vars/all.yml", TEMPLATE, QUOTES),
        ("group_vars/cluster.yml", "- a\n", "it is no mapping"),
        ("group_vars/cluster", "motley_adress: 1\n", "did you mean 'motley_address'?"),
        ("group_vars/all.json", '{"motley_adress": 1}', "did you mean 'motley_address'?"),
        ("group_vars/clster.yml", "motley_gpu: none\n", "did you mean 'cluster'?"),
        ("host_vars/onee.yml", "motley_gpu: none\n", "did you mean 'one'?"),
        ("host_vars/two/more.yml", "motley_gpu: none\n", "there is no machine 'two'"),
    ],
)
def test_a_file_of_another_shape_or_for_nobody_is_found(tmp_path: Path, file: str, text: str, expected: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "hosts.yml").write_text(HOSTS)
    (tmp_path / file).write_text(text)
    (finding,) = check(tmp_path).findings
    assert expected in str(finding)


def test_a_file_that_is_no_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("cluster:\n", encoding="utf-16")
    (finding,) = check(tmp_path).findings
    assert "not a text in UTF-8" in finding.what


def test_a_folder_in_the_place_of_the_file_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").mkdir()
    (finding,) = check(tmp_path).findings
    assert "it cannot be read" in finding.what


def test_a_folder_that_may_not_be_looked_into_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = Mock(side_effect=PermissionError(13, "Permission denied"))
    monkeypatch.setattr("console.inventory.check.hosts_file", locked)
    (finding,) = check(tmp_path).findings
    assert finding.what == "it cannot be read: Permission denied"


def test_what_is_shared_by_an_anchor_is_merged_in(tmp_path: Path) -> None:
    hosts = "one: &shared {motley_gpu: none, motley_idle_watts: 5}\n    two: {<<: *shared, motley_gpu: RTX 3090}"
    (tmp_path / "hosts.yml").write_text(f"cluster:\n  hosts:\n    {hosts}\n")
    nodes = check(tmp_path).nodes
    assert nodes["two"] == {"motley_gpu": "RTX 3090", "motley_idle_watts": 5}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("#!/bin/sh\necho hello\n", "what it prints is no inventory"),
        ('#!/bin/sh\necho \'{"cluster": ["one"]}\'\n', "what it prints is no inventory"),
        ("#!/bin/sh\nexit 3\n", "it ended with exit code 3"),
        ("#!/no/such/python\n", "it cannot be run"),
        (
            '#!/bin/sh\necho \'{"cluster": {"hosts": ["one"]}, "_meta": {"hostvars": {}}}\'\n',
            "motley_address is missing",
        ),
    ],
)
def test_a_program_that_prints_no_inventory_is_a_finding(tmp_path: Path, text: str, what: str) -> None:
    program(tmp_path / "hosts.sh", text)
    assert what in check(tmp_path).findings[0].what


def test_no_other_program_of_a_folder_is_run(tmp_path: Path) -> None:
    """The folder may be a home or a download folder by mistake."""
    program(tmp_path / "cleanup", f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    assert check(tmp_path).findings[0].what == "no machines are described yet"
    written(tmp_path)
    assert [finding.where for finding in check(tmp_path).findings] == [str(tmp_path / "cleanup")]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("card", "served"),
    [(card, True) for card in ("RTX 5070 Ti", "RTX 4070 Laptop", "RTX 3070 Ti", "GTX 1660", "RTX 2060", "H100", "none")]
    + [(card, False) for card in ("GTX 1070", "Tesla V100", "Intel Arc A770", "Radeon RX 7900")],
)
def test_which_cards_the_pinned_torch_serves(card: str, served: bool) -> None:
    assert (architectures.unserved(card) == "") is served


def test_an_inventory_without_its_group_vars_is_not_connected_with(tmp_path: Path) -> None:
    assert written(tmp_path) == []
    with pytest.raises(BadInput, match="group_vars"):
        checked(tmp_path)
