"""The plan of a card that ifupdown has: left alone, or taken over with consent."""

from typing import Any

import pytest

from tests.support.netplan import planned


def by_ifupdown(*stanzas: dict[str, Any], **more: list[Any]) -> dict[str, Any]:
    return {"lo": [], "enp5s0": list(stanzas), **more}


def static(*options: list[str]) -> dict[str, Any]:
    return {"family": "inet", "method": "static", "options": list(options)}


STATIC = static(
    ["address", "192.168.1.23/24"], ["gateway", "192.168.1.1"], ["dns-nameservers", "192.168.1.5"], ["mtu", "9000"]
)
ADOPT = {"adopt": "netplan"}


@pytest.mark.parametrize("has_netplan", [True, False])
def test_a_card_that_ifupdown_has_is_taken_over_with_consent(has_netplan: bool) -> None:
    auto6 = {"family": "inet6", "method": "auto", "options": []}
    second = static(["address", "10.20.0.5"], ["netmask", "255.255.0.0"])
    more = {"has_netplan": has_netplan, "ifupdown": by_ifupdown(STATIC, second, auto6), "resolv_conf": "file"}
    refused = planned({}, **more)
    assert "enp5s0 is set up without netplan" in refused["error"]
    assert "motley_static_ip_adopt: netplan" in refused["fix"]
    plan = planned({}, ADOPT | {"dns": []}, dns={"enp5s0": {"servers": ["192.168.1.5"], "search": ["home"]}}, **more)
    assert plan["own"]["addresses"] == ["192.168.1.100/24", "10.20.0.5/16"] and plan["own"]["mtu"] == 9000
    assert plan["own"]["nameservers"] == {"addresses": ["192.168.1.5"], "search": ["home"]}
    assert "/etc/resolv.conf" not in plan["files"]
    assert plan["adopts"] and plan["install"] == ([] if has_netplan else ["netplan.io"])


def test_where_no_service_writes_resolv_conf_it_gets_the_name_servers_that_are_wished_for() -> None:
    more = {"ifupdown": by_ifupdown(STATIC), "resolv_conf": "file"}
    plan = planned(
        {}, ADOPT | {"dns": ["9.9.9.9"]}, dns={"enp5s0": {"servers": ["1.1.1.1"], "search": ["home"]}}, **more
    )
    assert "nameserver 9.9.9.9\nsearch home\n" in plan["files"]["/etc/resolv.conf"]


@pytest.mark.parametrize(
    ("stanza", "more", "word"),
    [
        (static(["post-up", "/usr/local/bin/wake"]), {}, "post-up"),
        (static(["bridge_ports", "enp6s0"]), {}, "bridge_ports"),
        ({**STATIC, "method": "ppp"}, {}, "ppp"),
        (STATIC, {"enp5s0.10": []}, "enp5s0.10"),
        (STATIC, {"enp5s0:1": []}, "enp5s0:1"),
        (STATIC, {"br0": [static(["bridge_ports", "enp5s0"])]}, "br0"),
    ],
)
def test_what_netplan_could_not_do_as_well_is_not_taken_over(
    stanza: dict[str, Any], more: dict[str, Any], word: str
) -> None:
    plan = planned({}, ADOPT, has_netplan=False, ifupdown=by_ifupdown(stanza, **more))
    assert "enp5s0 is set up without netplan" in plan["error"] and word in plan["error"]
    assert "in your router" in plan["fix"]
