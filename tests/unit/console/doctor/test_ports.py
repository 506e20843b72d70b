"""The ports that a run takes: all of them are tried, what is closed is named as a range, and the rule that does it."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import yaml

from console.doctor.judge import judge
from plugins.filter import doctor as filters
from plugins.module_utils.motley import blocking_rules, port_probe
from tests.support import ROOT
from tests.support.readings import healthy, with_links, with_node
from tests.support.spoiled import only, wrong

RULES = """\
table inet owner {
\tchain input {
\t\ttype filter hook input priority filter; policy accept;
\t\ttcp dport { 29450-29460, 40000 } counter packets 7 bytes 420 drop
\t\tudp dport 33000-34000 drop
\t\tip saddr 10.9.9.9 drop
\t}
}
table inet motley {
\tchain guard {
\t\ttcp dport { 29400-29899, 32768-60999 } reject with tcp reset
\t}
}
table ip filter {
\tchain ufw-user-input {
\t\ttcp dport 33000-34000 counter packets 0 bytes 0 reject
\t}
\tchain INPUT {
\t\ttype filter hook input priority filter; policy drop;
\t}
}
"""

FIREWALLD = """\
table inet firewalld {
\tchain filter_PREROUTING {
\t\ttype filter hook prerouting priority filter + 10; policy accept;
\t\tmeta nfproto ipv6 fib saddr . mark . iif oif missing drop
\t}
\tchain filter_INPUT {
\t\ttype filter hook input priority filter + 10; policy accept;
\t\tct state { established, related } accept
\t\tiifname "lo" accept
\t\tct state invalid drop
\t\tjump filter_INPUT_ZONES
\t\treject with icmpx admin-prohibited
\t}
\tchain filter_FORWARD {
\t\ttype filter hook forward priority filter + 10; policy accept;
\t\treject with icmpx admin-prohibited
\t}
\tchain filter_INPUT_ZONES {
\t\tgoto filter_IN_public
\t}
\tchain filter_IN_public {
\t\tjump filter_IN_public_allow
\t\tmeta l4proto { icmp, ipv6-icmp } accept
\t\treject with icmpx admin-prohibited
\t}
\tchain filter_IN_public_allow {
\t\ttcp dport 22 accept
\t}
}
"""
"""Of firewalld 1.3 as it comes, without the chains that lead nowhere."""
LETS_NOBODY_ELSE_IN = "reject with icmpx admin-prohibited (chain inet firewalld filter_INPUT)"


def test_rules_that_close_ports_are_read_and_our_own_are_not() -> None:
    assert blocking_rules.denying(RULES) == [
        {"chain": "inet owner input", "hook": "input", "rule": "tcp dport { 29450-29460, 40000 } drop",
         "ports": [[29450, 29460], [40000, 40000]]},
        {"chain": "ip filter ufw-user-input", "hook": "", "rule": "tcp dport 33000-34000 reject",
         "ports": [[33000, 34000]]},
        {"chain": "ip filter INPUT", "hook": "input", "rule": "policy drop", "ports": []},
    ]  # fmt: skip


def test_what_firewalld_keeps_out_at_last_is_read_where_it_comes_in() -> None:
    (rule,) = blocking_rules.denying(FIREWALLD)
    assert f"{rule['rule']} (chain {rule['chain']})" == LETS_NOBODY_ELSE_IN and rule["ports"] == []


def test_what_is_closed_is_found_to_the_port() -> None:
    span = (32768, 60999, 256)
    closed = range(33000, 34001)

    def answers(ports: list[int]) -> dict[int, str]:
        return {port: "no answer" if port in closed else "" for port in ports}

    found = answers(port_probe.tried(span))
    assert len(found) < 130 and {32768, 60999} <= found.keys()
    found |= answers(port_probe.edges(span, found))
    assert len(found) < 700
    assert port_probe.closed_ranges(span, found) == [(33000, 34000, "no answer")]
    assert port_probe.closed_ranges(span, dict.fromkeys(found, "refused")) == [(32768, 60999, "refused")]
    assert port_probe.closed_ranges(span, dict.fromkeys(found, "")) == []


def test_doors_are_called_and_those_of_others_are_left_alone() -> None:
    doors = port_probe.Doors()
    with socket.create_server(("", 0)) as taken, socket.create_server(("", 0)) as free:
        other, port = taken.getsockname()[1], free.getsockname()[1]
        free.close()
        assert doors.add([other, port]) == [port]
        assert port_probe.knock("127.0.0.1", [port], 1) == {port: ""}
        doors.close()
        assert port_probe.knock("127.0.0.1", [port], 1) == {port: "refused"}


def test_the_ports_are_those_that_a_run_takes() -> None:
    rendered = yaml.safe_load((ROOT / "roles/motley_render/defaults/main.yml").read_text())
    relay = yaml.safe_load((ROOT / "roles/motley_artifacts/defaults/main.yml").read_text())["motley_artifacts_port"]
    assert filters.motley_doctor_ports({}, rendered, relay) == ["29400-29400", "29410-29489", "29890-29890"]
    own = {"motley_render_presence_port": 29401, "motley_render_group_ports": [29500, 29510]}
    assert filters.motley_doctor_ports(own, rendered, relay) == ["29401-29401", "29500-29510", "29890-29890"]


SHUT = [[29450, 29460, "no answer"], [33000, 34000, "refused"]]


def test_a_part_that_is_closed_is_named_with_the_rule() -> None:
    shut = with_links(healthy(), [("head", "left"), ("right", "left")], shut=SHUT)
    look = dict(shut.nodes[1].look or {}) | {"rules": blocking_rules.denying(RULES)}
    finding = only(with_node(shut, "left", look=look))
    assert (finding.probe, finding.node, finding.phase) == ("ports", "left", "")
    assert "29450–29460, 33000–34000" in finding.what and "closed there to head, right" in finding.what
    assert "tcp dport { 29450-29460, 40000 } drop" in finding.what and "inet owner input" in finding.what
    assert "4 of 6" in {probe.name: probe.seen for probe in judge(shut).probes}["ports"]


def test_a_caller_whose_own_rule_keeps_it_in_is_the_one() -> None:
    shut = with_links(healthy(), [("left", "head"), ("left", "right")], shut=SHUT[:1])
    rules = blocking_rules.denying(RULES.replace("hook input", "hook output"))
    look = dict(shut.nodes[1].look or {}) | {"rules": rules}
    finding = only(with_node(shut, "left", look=look))
    assert finding.node == "left" and "cannot call" in finding.what and "head, right" in finding.what


@pytest.mark.parametrize("rules", [RULES.replace("29450-29460", "29465"), FIREWALLD])
def test_what_keeps_callers_out_keeps_nobody_in(rules: str) -> None:
    shut = with_links(healthy(), [("left", "head"), ("left", "right")], shut=SHUT[:1])
    look = dict(shut.nodes[1].look or {}) | {"rules": blocking_rules.denying(rules)}
    found = judge(with_node(shut, "left", look=look)).wrong
    assert [finding.node for finding in found] == ["head", "right"]
    assert all("are closed there to left" in finding.what for finding in found)


@pytest.mark.parametrize("how", [{"shut": SHUT}, {"reached": "No route to host"}], ids=["a part", "all"])
@pytest.mark.parametrize("managed", [True, False])
def test_firewalld_is_named_and_told_whom_to_let_in(how: dict[str, Any], managed: bool) -> None:
    shut = with_links(healthy(), [("head", "left"), ("right", "left")], **how)
    left = shut.nodes[1]
    look = dict(left.look or {}) | {"rules": blocking_rules.denying(FIREWALLD)}
    finding = only(with_node(shut, "left", look=look, expected=left.expected | {"firewall": managed}))
    assert LETS_NOBODY_ELSE_IN in finding.what
    sources = "--add-source=10.0.0.1 --add-source=10.0.0.3"
    assert f"sudo firewall-cmd --permanent --zone=trusted {sources}; sudo firewall-cmd --reload" in finding.fix
    assert finding.fix.startswith("./motley bootstrap --phase firewall --nodes left; else ") is managed is finding.safe


def test_without_a_known_rule_the_ports_are_named_all_the_same() -> None:
    finding = only(with_links(healthy(), [("head", "left")], shut=SHUT[1:]))
    assert finding.node == "left" and "33000–34000" in finding.what and "nft list ruleset" in finding.fix


def test_ports_that_were_left_alone_are_no_finding() -> None:
    assert wrong(with_links(healthy(), [("head", "left"), ("right", "left")], shut=None)) == []
