"""Every finding of the inventory's check, all at once, with the edit that fixes it."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from console.__main__ import checked
from console.inventory.check import check
from console.new_inventory import parse_hosts, write_inventory
from tests.support import pace
from train.errors import BadInput
from train.plan.machines import architectures

REPOSITORY = Path(__file__).resolve().parents[4]
GOOD: dict[str, Any] = {
    "vars": {"ansible_user": "anna", "motley_subnet": "192.168.1.0/24", "motley_gateway": "192.168.1.1"},
    "hosts": {"one": {"motley_address": "192.168.1.10"}, "two": {"motley_address": "192.168.1.11"}},
}


def written(folder: Path, *, nodes: dict[str, Any] | None = None, **shared: Any) -> list[str]:
    """The findings about the good inventory with these changes, as text."""
    hosts = {name: {**GOOD["hosts"].get(name, {}), **keys} for name, keys in {**GOOD["hosts"], **(nodes or {})}.items()}
    cluster = {"vars": {**GOOD["vars"], **shared}, "hosts": hosts}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"cluster": cluster}, sort_keys=False))
    return [str(finding) for finding in check(folder).findings]


def test_the_example_is_good_and_checked_in_a_moment() -> None:
    start = pace.now()
    inventory = check(REPOSITORY / "examples/hosts.yml")
    assert inventory.findings == []
    assert list(inventory.nodes) == ["gpu-master", "gpu-worker-1", "gpu-worker-2"]
    assert pace.now() - start < 1


def test_a_network_may_have_no_router(tmp_path: Path) -> None:
    """Two PCs on one cable, or a switch beside the home network."""
    hosts = {
        "cluster": {"vars": {k: v for k, v in GOOD["vars"].items() if k != "motley_gateway"}, "hosts": GOOD["hosts"]}
    }
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(hosts, sort_keys=False))
    assert check(tmp_path).findings == []


def test_a_fresh_checkout_describes_nobodys_machines(tmp_path: Path) -> None:
    """Shipped addresses would be somebody's: bootstrap and undo act on whoever answers there."""
    shipped = subprocess.run(
        ["git", "ls-files", "inventory/homelab"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.split()
    assert shipped and all("group_vars" in name for name in shipped)
    (finding,) = check(tmp_path).findings
    assert "no machines are described yet" in str(finding) and "./motley inventory" in str(finding)


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
    ],
)
def test_a_finding_says_what_mends_it(
    tmp_path: Path, nodes: dict[str, Any], shared: dict[str, Any], expected: str
) -> None:
    findings = written(tmp_path, nodes=nodes, **shared)
    assert len(findings) == 1 and expected in findings[0], findings


def test_all_findings_come_at_once(tmp_path: Path) -> None:
    nodes = {"one": {"motley_adress": "x"}, "two": {"motley_address": "192.168.1.1", "motley_gpu": "Tesla V100"}}
    assert len(written(tmp_path, nodes=nodes, motley_dns="192.168.1.1")) == 4


def test_two_machines_may_swap_their_addresses(tmp_path: Path) -> None:
    nodes = {"one": {"motley_current_address": "192.168.1.11"}, "two": {"motley_current_address": "192.168.1.10"}}
    assert written(tmp_path, nodes=nodes) == []


def test_a_name_written_twice_is_an_error_with_both_lines(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("cluster:\n  hosts:\n    one: {}\n    one: {}\n")
    (finding,) = check(tmp_path).findings
    assert "'one' is written twice, in lines 3 and 4" in finding.what


def test_what_is_shared_by_an_anchor_is_merged_in(tmp_path: Path) -> None:
    hosts = "one: &shared {motley_gpu: none, motley_idle_watts: 5}\n    two: {<<: *shared, motley_gpu: RTX 3090}"
    (tmp_path / "hosts.yml").write_text(f"cluster:\n  hosts:\n    {hosts}\n")
    nodes = check(tmp_path).nodes
    assert nodes["two"] == {"motley_gpu": "RTX 3090", "motley_idle_watts": 5}


def test_a_folder_that_may_not_be_looked_into_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(path: Path) -> Path:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("console.inventory.check.hosts_file", locked)
    (finding,) = check(tmp_path).findings
    assert finding.what == "it cannot be read: Permission denied"


@pytest.mark.parametrize("file", ["hosts.yml", "group_vars/all.yml"])
def test_a_template_without_quotes_is_named(tmp_path: Path, file: str) -> None:
    written(tmp_path)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / file).write_text("cluster:\n  motley_home: {{ my_home }}\n")
    (finding,) = check(tmp_path).findings
    assert finding.where == f"{tmp_path / file}:2" and '"{{ … }}"' in finding.fix


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
    (tmp_path / "hosts.sh").write_text(text)
    (tmp_path / "hosts.sh").chmod(0o755)
    assert what in check(tmp_path).findings[0].what


def test_no_other_program_of_a_folder_is_run(tmp_path: Path) -> None:
    """The folder may be a home or a download folder by mistake."""
    (tmp_path / "cleanup").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "cleanup").chmod(0o755)
    assert check(tmp_path).findings[0].what == "no machines are described yet"
    written(tmp_path)
    assert [finding.where for finding in check(tmp_path).findings] == [str(tmp_path / "cleanup")]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("text", ["cluster:\n\thosts: {}\n", "hosts:\n", "", "cluster:\n  hosts:\n", "- a\n"])
def test_broken_files_are_findings_and_no_traceback(tmp_path: Path, text: str) -> None:
    (tmp_path / "hosts.yml").write_text(text)
    assert len(check(tmp_path).findings) == 1


def test_a_missing_file_names_the_way_to_one(tmp_path: Path) -> None:
    assert "./motley inventory" in str(check(tmp_path).findings[0])


@pytest.mark.parametrize(
    ("card", "served"),
    [(card, True) for card in ("RTX 5070 Ti", "RTX 4070 Laptop", "RTX 3070 Ti", "GTX 1660", "RTX 2060", "H100", "none")]
    + [(card, False) for card in ("GTX 1070", "Tesla V100", "Intel Arc A770", "Radeon RX 7900")],
)
def test_which_cards_the_pinned_torch_serves(card: str, served: bool) -> None:
    assert (architectures.unserved(card) == "") is served


def test_make_inventory_writes_what_the_check_accepts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert write_inventory(tmp_path / "hosts.yml", "anna@192.168.7.23, bert@192.168.7.31") == 0
    assert capsys.readouterr().out.endswith(f"; next: ./motley bootstrap --inventory {tmp_path}\n")
    inventory = check(tmp_path)
    assert inventory.findings == []
    assert "ansible_ssh_common_args" in inventory.nodes["gpu-master"]
    assert inventory.nodes["gpu-worker-1"]["ansible_user"] == "bert"
    assert "motley_dns" not in inventory.nodes["gpu-master"]  # a node keeps its own, such as a Pi-hole


@pytest.mark.parametrize("words", ["192.168.1.3", "anna@", "anna@192.168.1.999", ""])
def test_make_inventory_says_which_word_is_wrong(words: str) -> None:
    with pytest.raises(ValueError):
        parse_hosts(words)


def test_a_file_that_is_no_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("cluster:\n", encoding="utf-16")
    (finding,) = check(tmp_path).findings
    assert "not a text in UTF-8" in finding.what


def test_a_port_is_kept_and_a_machine_named_twice_is_refused(tmp_path: Path) -> None:
    assert write_inventory(tmp_path / "hosts.yml", "anna@192.168.1.23 anna@192.168.1.24:2222") == 0
    inventory = check(tmp_path)
    assert inventory.findings == [] and inventory.nodes["gpu-worker-1"]["ansible_port"] == 2222
    with pytest.raises(ValueError, match="already in the list"):
        parse_hosts("anna@192.168.1.23 bert@192.168.1.23")


def test_an_inventory_without_its_group_vars_is_not_connected_with(tmp_path: Path) -> None:
    assert written(tmp_path) == []
    with pytest.raises(BadInput, match="group_vars"):
        checked(tmp_path)


ONE = "cluster:\n  vars: {ansible_user: a, motley_subnet: 192.168.1.0/24, motley_gateway: 192.168.1.1}\n"
ONE += "  hosts:\n    one: {motley_address: 192.168.1.10}\n"


def refused(folder: Path, **files: str) -> str:
    """The one finding about an inventory of these files; double underscores stand for the folder's."""
    for name, text in {"hosts_yml": ONE, **files}.items():
        path = folder / name.replace("__", "/").replace("_yml", ".yml").replace("_json", ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (finding,) = check(folder).findings
    return str(finding)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"hosts_yml": "cluster:\n  vars: [a]\n  hosts:\n    one: {}\n"}, "vars is no mapping"),
        ({"hosts_yml": "cluster:\n  hosts: [one, two]\n"}, "hosts is no mapping"),
        ({"hosts_yml": "cluster:\n  hosts: one\n"}, "hosts is no mapping"),
        ({"hosts_yml": "all: [1]\n"}, "the group 'cluster' is missing"),
        ({"hosts_yml": "all:\n  children: 3\n"}, "the group 'cluster' is missing"),
        ({"group_vars__cluster_yml": "- a\n"}, "it is no mapping"),
        ({"group_vars__cluster": "motley_adress: 1\n"}, "did you mean 'motley_address'?"),
        ({"group_vars__all_json": '{"motley_adress": 1}'}, "did you mean 'motley_address'?"),
        ({"group_vars__clster_yml": "motley_gpu: none\n"}, "did you mean 'cluster'?"),
        ({"host_vars__onee_yml": "motley_gpu: none\n"}, "did you mean 'one'?"),
        ({"host_vars__two__more_yml": "motley_gpu: none\n"}, "there is no machine 'two'"),
    ],
)
def test_a_file_of_another_shape_or_for_nobody_is_a_finding(
    tmp_path: Path, files: dict[str, str], expected: str
) -> None:
    assert expected in refused(tmp_path, **files)


def test_a_folder_in_the_place_of_the_file_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").mkdir()
    (finding,) = check(tmp_path).findings
    assert "it cannot be read" in finding.what


@pytest.mark.parametrize(
    ("shared", "expected"),
    [
        ({"motley_firewall_ports": "29400"}, "it expects FIRST-LAST"),
        ({"motley_firewall_ports": "29899-29400"}, "it expects FIRST-LAST"),
        ({"motley_firewall_ports": "500-900"}, "it expects FIRST-LAST"),
        ({"motley_firewall_high_ports": "32768:60999"}, "it expects FIRST-LAST"),
        ({"motley_firewall_ports": "29600-29899"}, "runs need the ports 29400 to 29893"),
        ({"ansible_port": 29500}, "SSH's port 29500 is one of a run's"),
        ({"motley_firewall_manage": "false"}, "true or false, without quotes"),
        ({"motley_dns": ["127.0.0.53"]}, "127.0.0.53 is each machine itself"),
        ({"motley_static_ip_reconnect_s": 60}, "takes the change back after 60 s"),
        ({"motley_static_ip_rollback_s": 0}, "takes the change back after 0 s"),
        ({"motley_python_env_sets": ["node-gpu-r57"]}, "did you mean 'node-gpu-r570'?"),
        ({"motley_python_env_sets": [{"node-gpu": None}]}, "there is no locked set '{'node-gpu': None}'"),
        ({"motley_python_env_sets": ["unsloth"]}, "one of them is node-cpu, node-gpu or node-gpu-r570"),
    ],
)
def test_what_a_phase_would_refuse_is_refused_before(tmp_path: Path, shared: dict[str, Any], expected: str) -> None:
    findings = written(tmp_path, **shared)
    assert len(findings) == 1 and expected in findings[0], findings


@pytest.mark.parametrize("subnet", ["100.64.0.0/16", "127.0.0.0/24", "169.254.0.0/16", "224.0.0.0/24", "240.0.0.0/24"])
def test_a_network_that_is_no_lan_is_refused(tmp_path: Path, subnet: str) -> None:
    base = subnet.rpartition(".")[0]
    nodes = {"one": {"motley_address": f"{base}.10"}, "two": {"motley_address": f"{base}.11"}}
    (finding,) = written(tmp_path, nodes=nodes, motley_subnet=subnet, motley_gateway=f"{base}.1")
    assert "is no home network" in finding


def test_nodes_with_different_sets_are_refused(tmp_path: Path) -> None:
    nodes = {"one": {"motley_python_env_sets": ["node-cpu"]}, "two": {"motley_python_env_sets": ["node-gpu"]}}
    (finding,) = written(tmp_path, nodes=nodes)
    assert "differs between one and two" in finding


def test_a_machine_without_a_guarded_firewall_may_serve_ssh_anywhere(tmp_path: Path) -> None:
    assert written(tmp_path, ansible_port=29500, motley_firewall_manage=False) == []


def test_digits_alone_get_a_name_that_is_one(tmp_path: Path) -> None:
    nodes = {"7": {"motley_address": "192.168.1.12"}}
    assert "not digits alone: node-7" in written(tmp_path, nodes=nodes)[0]
