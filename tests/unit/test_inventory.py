"""Every finding of the inventory's check, all at once, with the edit that mends it."""

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from console import cards
from console.__main__ import BadInput, checked
from console.ask import parse_hosts, write_inventory
from console.inventory import check

REPOSITORY = Path(__file__).resolve().parents[2]
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


def test_the_shipped_inventory_is_good_and_checked_in_a_moment() -> None:
    start = time.monotonic()
    inventory = check(REPOSITORY / "inventory/homelab")
    assert inventory.findings == []
    assert list(inventory.nodes) == ["gpu-master", "gpu-worker-1", "gpu-worker-2"]
    assert time.monotonic() - start < 1


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


@pytest.mark.parametrize("text", ["cluster:\n\thosts: {}\n", "hosts:\n", "", "cluster:\n  hosts:\n", "- a\n"])
def test_broken_files_are_findings_and_no_traceback(tmp_path: Path, text: str) -> None:
    (tmp_path / "hosts.yml").write_text(text)
    assert len(check(tmp_path).findings) == 1


def test_a_missing_file_names_the_way_to_one(tmp_path: Path) -> None:
    assert "make inventory" in str(check(tmp_path).findings[0])


@pytest.mark.parametrize(
    ("card", "served"),
    [(card, True) for card in ("RTX 5070 Ti", "RTX 4070 Laptop", "RTX 3070 Ti", "GTX 1660", "RTX 2060", "H100", "none")]
    + [(card, False) for card in ("GTX 1070", "Tesla V100", "Intel Arc A770", "Radeon RX 7900")],
)
def test_which_cards_the_pinned_torch_serves(card: str, served: bool) -> None:
    assert (cards.unserved(card) == "") is served


def test_make_inventory_writes_what_the_check_accepts(tmp_path: Path) -> None:
    assert write_inventory(tmp_path / "hosts.yml", "anna@192.168.7.23, bert@192.168.7.31") == 0
    inventory = check(tmp_path)
    assert inventory.findings == []
    assert "ansible_ssh_common_args" in inventory.nodes["gpu-master"]
    assert inventory.nodes["gpu-worker-1"]["ansible_user"] == "bert"


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
    with pytest.raises(ValueError, match="named twice"):
        parse_hosts("anna@192.168.1.23 bert@192.168.1.23")


def test_an_inventory_without_its_group_vars_is_not_connected_with(tmp_path: Path) -> None:
    assert written(tmp_path) == []
    with pytest.raises(BadInput, match="group_vars"):
        checked(tmp_path)
