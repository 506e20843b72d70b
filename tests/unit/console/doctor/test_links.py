"""The doctor between the nodes: ports, packets and speed of each pair, whose fault it is, and who is measured when."""

from hypothesis import given
from hypothesis import strategies as st

from console.doctor.judge import judge
from console.doctor.links import blame
from plugins.filter.doctor import motley_doctor_collective
from plugins.modules.link_probe import turns
from tests.support.readings import healthy, lan_card, with_links, with_node, with_part
from tests.support.spoiled import LEFT, links, only, wrong


def test_a_port_that_is_shut_is_the_fault_of_the_one_who_shuts_it() -> None:
    shut = with_links(healthy(), [("head", "left")], reached="refused")
    shut = with_links(shut, [("right", "left")], reached="refused")
    finding = only(shut)
    assert finding.node == "left" and "closed to head, right (refused)" in finding.what
    assert "4 of 6" in {probe.name: probe.seen for probe in judge(shut).probes}["ports"]


def test_a_node_whose_probe_did_not_start_is_not_also_called_shut() -> None:
    mute = with_node(healthy(), "left", link_failed="port 29892 is taken there", links=None)
    mute = with_links(mute, [("head", "left"), ("right", "left")], reached="refused")
    assert wrong(mute) == [("ports", "left")]


def test_full_packets_that_do_not_arrive_are_found_whichever_side_sends_them() -> None:
    one_way = with_links(healthy(), [("left", "head"), ("right", "left")], full_packets=False)
    finding = only(one_way)
    assert (finding.probe, finding.node) == ("packets", "left")
    assert only(with_links(healthy(), [("right", "head")], full_packets=False)).what.startswith("full packets do not")


def test_slow_because_late_is_late_alone() -> None:
    assert wrong(with_links(healthy(), LEFT, rtt_ms=60.0, mbit_to=30.0)) == [("round trip", "left")]
    assert wrong(with_links(healthy(), LEFT, loss_percent=9.0, mbit_to=30.0)) == [("loss", "left")]


def test_wifi_is_noted_and_not_held_against_what_a_cable_would_do() -> None:
    wifi = with_part(healthy(), "left", "network", links=[lan_card("10.0.0.2", wireless=True, mbit=0)])
    verdict = judge(with_links(wifi, LEFT, mbit_to=180.0, mbit_from=160.0))
    assert verdict.ok
    (note,) = verdict.findings
    assert note.note and note.node == "left" and "Wi-Fi" in note.what


def test_what_a_lived_in_machine_has_beside_its_card_is_no_finding() -> None:
    """Docker, a VPN over all of 10/8 and one in 100.64/10, a VLAN on the card: the kernel takes the narrower route."""
    others = [
        lan_card("10.8.0.2", name="tun0", addresses=["10.8.0.2/8"], mbit=0, ethernet=False),
        lan_card("100.101.7.9", name="tailscale0", addresses=["100.101.7.9/32"], mbit=0, ethernet=False),
        lan_card("172.17.0.1", name="docker0", addresses=["172.17.0.1/16"], carrier=False, mbit=0),
        lan_card("192.168.20.4", name="enp3s0.20"),
        lan_card("", name="tun1", addresses=["10.8.0.5/8"], mbit=0, ethernet=False),
    ]
    verdict = judge(links(*others)(healthy()))
    assert verdict.ok, verdict.wrong


def test_an_address_on_two_nodes_is_found() -> None:
    twice = links(lan_card("10.0.0.1", name="enp4s0", addresses=["10.0.0.1/32"]))(healthy())
    assert "10.0.0.1 is on head, left at once" in " ".join(finding.what for finding in judge(twice).wrong)


def test_blame() -> None:
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    assert blame([pairs[0], pairs[2]], [pairs[1]]) == (["b"], [])
    assert blame([pairs[0]], pairs[1:]) == ([], [pairs[0]])
    assert blame([("a", "b")], []) == ([], [("a", "b")]), "of two nobody can tell which"
    assert blame(pairs, []) == ([], pairs), "all are slow: the switch, or the rule"


@given(st.integers(3, 7).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), max_size=1))))
def test_one_bad_node_is_always_found_and_only_it(case: tuple[int, set[int]]) -> None:
    count, bad = case
    pairs = [(str(i), str(j)) for i in range(count) for j in range(i + 1, count)]
    spoiled = [pair for pair in pairs if {int(name) for name in pair} & bad]
    guilty, left = blame(spoiled, [pair for pair in pairs if pair not in spoiled])
    assert (guilty, left) == ([str(name) for name in bad], [])


@given(st.data())
def test_blame_leaves_no_bad_pair_unexplained(data: st.DataObject) -> None:
    pairs = [(str(i), str(j)) for i in range(5) for j in range(i + 1, 5)]
    bad = data.draw(st.lists(st.sampled_from(pairs), unique=True))
    good = [pair for pair in pairs if pair not in bad]
    guilty, left = blame(bad, good)
    assert all(pair in left or set(pair) & set(guilty) for pair in bad)
    assert not any(set(pair) & set(guilty) for pair in good), "nobody with a good link is to blame"


@given(st.integers(2, 9))
def test_pairs_take_turns_without_waiting_in_a_circle(count: int) -> None:
    names = [f"n{i}" for i in range(count)]
    waiting = {name: turns(name, names) for name in names}
    for name, order in waiting.items():
        assert sorted(partner for partner, _ in order) == sorted(set(names) - {name})
        for partner, begins in order:
            assert dict(waiting[partner])[name] is not begins, "one of both begins"
    rounds = 0
    while any(waiting.values()):  # whoever are each other's next go together
        ready = {n: o[0][0] for n, o in waiting.items() if o and waiting[o[0][0]][0][0] == n}
        assert ready, "everybody waits for somebody else"
        for name in ready:
            waiting[name] = waiting[name][1:]
        rounds += 1
    assert rounds == count - 1 + count % 2


def told(**other: object) -> dict[str, object]:
    files = {"torch": True, "adapter_bytes": 0}
    seen = {"runs": {"on": False}, "files": files | {k: v for k, v in other.items() if k in files}}
    seen["runs"] = {"on": bool(other.get("on"))}
    link = {"reached": other.get("reached", ""), "mbit_to": other.get("mbit", 940.0)}
    return {"motley_doctor_as_root": {"look": seen}, "motley_doctor_links": {"links": {"b": link}}}


def decided(load: bool = True, **other: object) -> dict[str, object]:
    return motley_doctor_collective(["a", "b"], {"a": told(**other), "b": told()}, load)


def test_an_all_reduce_is_tried_where_it_can_end_well() -> None:
    assert decided() == {"why": "", "floats": 4_900_000, "run_on": False}
    assert decided(adapter_bytes=80_000_000)["floats"] == 20_000_000
    assert decided(on=True)["run_on"] and decided(on=True)["why"] and decided(load=False)["why"]
    assert "no environment yet on a" in str(decided(torch=False)["why"])
    assert decided(reached="refused")["why"] == "a does not reach b on all ports: it could not end well"
    assert "at 10 Mbit/s it would take 31 s" in str(decided(mbit=10.0)["why"])
    away = {"look": {"files": {"torch": True}, "network": {"nic": "", "links": []}}}
    gone = motley_doctor_collective(["a", "b"], {"a": told(), "b": {"motley_doctor_as_root": away}}, True)
    assert str(gone["why"]).startswith("it needs two nodes"), "nobody could call it at its address"
    alone = motley_doctor_collective(["a", "b"], {"a": told(), "b": {}}, True)
    assert str(alone["why"]).startswith("it needs two nodes")
