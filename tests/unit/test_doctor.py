"""The doctor's judgement: from readings to findings, each fault by its name and on its node. No host."""

import copy
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.doctor import show, verb
from console.doctor.judge import PROBES, judge
from console.doctor.links import blame
from console.doctor.readings import Finding, Readings
from plugins.filter.doctor import motley_doctor_collective, motley_doctor_looks, motley_doctor_mtu
from plugins.module_utils.before import digest, undone, with_block
from plugins.module_utils.driver_packages import xids
from plugins.module_utils.turns import turns
from tests.support.readings import CARD, NAMES, healthy, lan_card, with_links, with_node, with_part

Spoil = Callable[[Readings], Readings]
LEFT = [("head", "left"), ("left", "right")]
"""Every pair that the node `left` is in."""


def wrong(readings: Readings) -> list[tuple[str, str]]:
    return [(finding.probe, finding.node) for finding in judge(readings).wrong]


def only(readings: Readings) -> Finding:
    (finding,) = judge(readings).wrong
    return finding


def test_a_healthy_cluster_has_no_finding_and_every_probe_says_what_it_saw() -> None:
    verdict = judge(healthy())
    assert verdict.ok and verdict.findings == []
    assert [probe.name for probe in verdict.probes] == list(PROBES)
    assert all(probe.seen and not probe.skipped for probe in verdict.probes)
    assert {probe.name: probe.seconds for probe in verdict.probes}["all-reduce"] == 8.0


def part(name: str, **other: object) -> Spoil:
    return lambda readings: with_part(readings, "left", name, **other)


def node(**other: object) -> Spoil:
    return lambda readings: with_node(readings, "left", **other)


def met(**other: object) -> Spoil:
    return node(met={"tried": ["10.0.0.2"], **other}, look=None, links=None, versions=None, sudo=None)


def card(**other: str) -> Spoil:
    return part("gpu", shown=[CARD | other])


def links(*more: dict[str, object], **other: object) -> Spoil:
    return part("network", links=[lan_card("10.0.0.2", **other), *more])


DOCKER = lan_card("10.0.0.77", name="docker0")
FAULTS: dict[str, tuple[Spoil, str, str, str]] = {
    # what happened: (how the readings change, finding, words of its cause, words of its mend)
    "off": (met(state="off"), "reach", "nobody answers at 10.0.0.2", "wake it"),
    "hangs": (met(state="off", knock="silent"), "reach", "it hangs", "power button"),
    "no sshd": (met(state="off", knock="refused"), "reach", "no SSH server", "openssh-server"),
    "reinstalled": (met(state="changed", pinned_on="2026-01-01"), "host key", "pinned on 2026-01-01", "REPIN=left"),
    "copied": (met(state="double", twin="head"), "host key", "same host key as head", "ssh_host_"),
    "stranger": (met(state="new"), "host key", "not pinned", "make bootstrap"),
    "address swapped": (met(state="off", twin="head"), "reach", "answered by head", "ip -4"),
    "key refused": (node(look=None, unreachable="Permission denied (publickey)"), "ssh", "refuses", "PHASE=ssh_trust"),
    "wrong password": (node(sudo="Incorrect sudo password"), "sudo", "not for sudo", "SUDO_PASSWORD=ask"),
    "no sudo": (node(sudo="user is not in the sudoers file"), "sudo", "may not use sudo", "usermod -aG sudo"),
    "full, unreadable": (node(look=None, look_failed="No space left on device"), "disk", "disk is full", "du -xhd1"),
    "127.0.1.1": (part("names", loopback=["left"]), "names", "loopback", "PHASE=hostname LIMIT=left"),
    "hosts gone": (part("names", lead_to={"left": "10.0.0.2"}), "names", "head leads to nothing", "PHASE=hostname"),
    "other name": (part("names", hostname="debian"), "names", "calls itself debian", "PHASE=hostname"),
    "address lost": (part("network", card=""), "network", "on none of its cards", "PHASE=static_ip LIMIT=left"),
    "tailscale": (
        part("network", ways={"head": {"card": "tailscale0", "source": "100.64.0.2"}}),
        "network", "to head by tailscale0", "ip route get",
    ),
    "docker0 overlaps": (links(DOCKER), "network", "docker0 (10.0.0.77/24) is in the same network", "docker0 down"),
    "address taken": (part("network", also_has_address="02:aa"), "network", "also answers for 10.0.0.2", "another"),
    "card renamed": (part("files", interface="eth7"), "network", "name the card eth7", "make launch RESUME="),
    "never guarded": (part("firewall", kind="none", on=False), "firewall", "never done", "PHASE=firewall LIMIT=left"),
    "flushed": (part("firewall", on=False), "firewall", "not loaded", "PHASE=firewall LIMIT=left"),
    "friend missing": (part("firewall", friends=["10.0.0.2", "10.0.0.1"]), "firewall", "keep out right", "PHASE=fire"),
    "ufw rule gone": (part("firewall", kind="ufw", gone=["allow from 10.0.0.1"]), "firewall", "allow from", "PHASE"),
    "probe port taken": (node(link_failed="port 29892 is taken there", links=None), "ports", "29892 is taken", "PHASE"),
    "half duplex": (links(duplex="half"), "link", "half duplex", "another cable"),
    "100 Mbit": (links(mbit=100), "link", "runs at 100 Mbit/s", "all eight wires"),
    "small packets": (links(mtu=1400), "packets", "packets of 1400 bytes", "mtu 1500"),
    "late": (lambda r: with_links(r, LEFT, rtt_ms=41.0), "round trip", "late, there and back: 41 ms to head", "cable"),
    "uneven": (lambda r: with_links(r, LEFT, jitter_ms=9.0), "round trip", "unevenly", "cable"),
    "lossy": (lambda r: with_links(r, LEFT, loss_percent=30.0), "loss", "packets are lost: 30 %", "cable"),
    "slow": (lambda r: with_links(r, LEFT, mbit_to=18.0), "throughput", "far slower", "another cable"),
    "clock": (part("clock", skew_s=-95.0), "clock", "-95 s off", "PHASE=clock LIMIT=left"),
    "battery": (part("power", battery=True, on_mains=False, percent="71"), "power", "on battery (71 %)", "plug it in"),
    "slow disk": (part("disk_speed", write_mb_s=1.5), "disk", "writes 1.5 MB/s", "dmesg"),
    "throttled core": (part("processor", share=0.1), "processor", "something throttles it", "top"),
    "apt": (part("apt", holder="unattended-upgr (process 7)"), "apt", "apt is busy: unattended", "let it finish"),
    "gpu lost": (part("gpu", cards=[{"bus": "0000:01:00.0", "lost": True}], xid="79"), "gpu", "bus (Xid 79)", "off"),
    "gpu hot": (card(**{"reasons": "0x48", "temperature.gpu": "95"}), "gpu throttled", "95 °C", "dust"),
    "game": (card(**{"memory.used": "5000"}), "gpu in use", "4.9 of 8 GB", "close that program"),
    "game, computing": (card(**{"utilization.gpu": "97"}), "gpu in use", "97 % busy", "close that program"),
    "driver": (node(driver_fault="no driver is installed\nfix: make bootstrap PHASE=gpu_driver"), "driver",
               "no driver is installed", "PHASE=gpu_driver LIMIT=left"),
    "phase undone": (
        part("units", **{"motley-run.path": {"phase": "run", "enabled": "disabled", "active": "inactive"}}),
        "phases", "motley-run.path is disabled and inactive", "PHASE=run LIMIT=left",
    ),
    "orphans": (part("runs", orphans=[7, 8]), "runs", "2 processes of an older run", "make stop"),
    "wanted": (part("runs", wanted=True, unit="failed"), "runs", "none is on (its unit: failed", "make logs NODE=left"),
    "no all-reduce": (node(collective_failed="timed out\nfix: make check"), "all-reduce", "timed out", "check"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_finding_on_its_node_with_cause_and_mend(name: str) -> None:
    spoil, probe, cause, mend = FAULTS[name]
    finding = only(spoil(healthy()))
    assert (finding.probe, finding.node) == (probe, "left")
    assert cause in finding.what and mend in finding.fix, finding
    assert "\n" not in finding.what + finding.fix and "{" not in finding.what + finding.fix


def disk(place: str, **other: object) -> Readings:
    seen = copy.deepcopy(next(n for n in healthy().nodes if n.name == "left").look or {})["disk"]
    return with_part(healthy(), "left", "disk", **{place: seen[place] | other})


def test_the_disk_is_judged_by_what_is_still_to_come() -> None:
    assert "4.0 GB are free" in only(disk("home", free_gb=4.0)).what
    assert judge(disk("home", free_gb=6.0)).ok, "the environment is there already"
    assert not judge(with_part(disk("home", free_gb=6.0), "left", "files", torch=False)).ok
    assert only(disk("system", free_gb=0.1)).what.endswith("free for /var, 0.5 GB are needed")
    assert "read-only" in only(disk("home", read_only=True)).what
    assert "no more files" in only(disk("system", free_files=0)).what
    everywhere = {"free_gb": 0.0, "whole_gb": 40.0, "free_files": 9, "read_only": False}
    both = {place: everywhere | {"path": path} for place, path in (("home", "/home/user"), ("system", "/var"))}
    assert "free for /home/user" in only(with_part(healthy(), "left", "disk", **both)).what


def test_a_dead_node_is_one_finding_and_the_others_are_judged() -> None:
    dead = met(state="off")(healthy())
    two = with_part(dead, "right", "clock", skew_s=99.0)
    assert wrong(two) == [("reach", "left"), ("clock", "right")]
    assert "2 of 3" in {probe.name: probe.seen for probe in judge(dead).probes}["names"]


def test_all_dead_is_said_of_each_and_nothing_else_is_claimed() -> None:
    readings = healthy()
    for name in NAMES:
        readings = with_node(readings, name, met={"state": "off", "tried": ["x"]}, look=None, links=None, versions=None)
        readings = with_node(readings, name, collective=None, sudo=None)
    verdict = judge(readings)
    assert [finding.probe for finding in verdict.wrong] == ["reach"] * 3
    assert all(probe.skipped for probe in verdict.probes if probe.name != "ssh")


def test_without_root_what_needs_it_is_left_out_with_a_sentence() -> None:
    readings = healthy()
    for name in NAMES:
        seen = copy.deepcopy(next(n for n in readings.nodes if n.name == name).look or {})
        seen |= {"root": False, "phases": None, "units": None, "firewall": None, "apt": {"holder": None}}
        readings = with_node(readings, name, look=seen, sudo=None)
    verdict = judge(readings)
    assert verdict.ok
    left_out = {probe.name: probe.seen for probe in verdict.probes if probe.skipped}
    assert left_out.keys() == {"sudo", "firewall", "apt", "phases"}
    assert left_out["sudo"].startswith("no password was given") and left_out["apt"] == "it needs sudo"


def test_a_run_that_is_on_is_not_disturbed_and_its_cards_are_not_in_use_by_others() -> None:
    readings = healthy()
    for name in NAMES:
        readings = with_part(readings, name, "runs", on=True, run="qa", agents=[5])
        readings = with_part(readings, name, "gpu", shown=[CARD | {"memory.used": "7000", "utilization.gpu": "99"}])
    verdict = judge(replace(readings, no_collective="left out"))
    assert verdict.ok, verdict.wrong
    skipped = {probe.name: probe.seen for probe in verdict.probes if probe.skipped}
    assert skipped.keys() == {"throughput", "processor", "all-reduce"}
    assert "run qa is on" in skipped["throughput"]
    other = with_part(readings, "right", "runs", run="other")
    assert wrong(other) == [("runs", "right")]


def test_orphans_are_not_ended_while_a_run_is_on() -> None:
    orphans = with_part(healthy(), "left", "runs", orphans=[7])
    assert only(orphans).safe
    on = with_part(orphans, "head", "runs", on=True, run="qa", agents=[5])
    assert [finding.safe for finding in judge(on).wrong] == [False]


def test_one_cause_is_told_once_per_phase_and_node() -> None:
    gone = with_part(healthy(), "left", "names", lead_to={})
    both = with_node(gone, "left", look={**(gone.nodes[1].look or {}), "phases": [
        {"phase": "hostname", "path": "/etc/hosts", "trouble": "no block"},
        {"phase": "power", "path": "/etc/x", "trouble": "gone"},
    ]})  # fmt: skip
    assert wrong(both) == [("names", "left"), ("phases", "left")]
    shut = with_links(with_part(healthy(), "left", "firewall", on=False), [("head", "left")], reached="refused")
    assert wrong(shut) == [("firewall", "left")]
    assert [line for line in show.lines(judge(shut), 1.0) if "✗ ports" in line and "left: see below" in line]
    assert "/etc/x is gone" in judge(both).wrong[1].what


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


def test_a_limit_of_power_and_a_closed_lid_are_notes() -> None:
    readings = card(**{"power.limit": "150.00", "power.default_limit": "220.00"})(healthy())
    readings = with_part(readings, "left", "power", lid="closed")
    verdict = judge(readings)
    assert verdict.ok and [finding.probe for finding in verdict.findings] == ["power", "gpu"]
    assert "150 of 220 W" in verdict.findings[1].what


def test_a_busy_machine_is_noted_and_a_throttled_one_is_found() -> None:
    busy = judge(with_part(healthy(), "left", "processor", share=0.1, load=60.0))
    assert busy.ok and "other programs" in busy.findings[0].what
    assert not judge(with_part(healthy(), "left", "processor", share=0.1, load=6.0)).ok


def test_a_hot_card_at_full_load_is_not_also_in_use_but_a_full_one_is() -> None:
    hot = {"reasons": "0x48", "utilization.gpu": "97"}
    assert wrong(card(**hot)(healthy())) == [("gpu throttled", "left")]
    assert wrong(card(**hot, **{"memory.used": "6000"})(healthy())) == [
        ("gpu throttled", "left"),
        ("gpu in use", "left"),
    ]


def test_power_caps_and_idling_are_no_throttling_and_not_available_is_no_number() -> None:
    for reasons in ("0x1", "0x4", "[N/A]", "Not Active"):
        assert judge(card(reasons=reasons)(healthy())).ok
    assert judge(card(**{"temperature.gpu": "[N/A]", "memory.used": "[N/A]"})(healthy())).ok


def test_a_lost_card_is_not_a_driver_fault_as_well() -> None:
    lost = part("gpu", cards=[{"bus": "0000:01:00.0", "lost": True}], shown=[])(healthy())
    lost = with_node(lost, "left", driver_fault="the card at 0000:01:00.0 has fallen off the bus\nfix: off and on")
    assert wrong(lost) == [("gpu", "left")]
    full = with_node(disk("home", free_gb=0.0), "left", driver_fault="apt does not answer: No space left on device")
    assert wrong(full) == [("disk", "left")]


def test_versions_are_judged_as_check_versions_does() -> None:
    seen = dict(healthy().nodes[1].versions or {})
    finding = only(with_node(healthy(), "left", versions=seen | {"environment": "zzz", "torch": "2.10.0"}))
    assert (finding.probe, finding.phase, finding.safe) == ("versions", "python_env", True)
    assert "environment is zzz, not abc123" in finding.what
    old = with_node(
        healthy(), "left", versions=seen | {"driver": "570.1", "driver_library": "570.1", "driver_on_disk": "570.1"}
    )
    assert only(old).what.startswith("driver is 570.1, not 580.95.05") and not only(old).safe
    broken = with_node(old, "left", driver_fault="the module is 570.1, the library 580\nfix: x")
    assert wrong(broken) == [("driver", "left")]


def test_an_address_on_two_nodes_is_found() -> None:
    twice = links(lan_card("10.0.0.1", name="enp4s0", addresses=["10.0.0.1/32"]))(healthy())
    assert "10.0.0.1 is on head, left at once" in " ".join(finding.what for finding in judge(twice).wrong)


def test_the_nearer_of_two_answers_counts_for_the_clock() -> None:
    late = with_part(healthy(), "left", "clock", skew_s=14.0)  # a slow machine was asked
    assert not judge(late).ok
    assert judge(with_node(late, "left", skew_again_s=1.5)).ok
    assert not judge(with_node(late, "left", skew_again_s=13.0)).ok


def test_a_part_that_could_not_be_read_says_why() -> None:
    readings = healthy()
    for name in NAMES:
        seen = (next(n for n in readings.nodes if n.name == name).look or {}) | {"clock": None}
        readings = with_node(readings, name, look=seen | {"troubles": {"clock": "OSError: timedatectl"}})
    assert {p.name: p.seen for p in judge(readings).probes if p.skipped} == {"clock": "OSError: timedatectl"}


def test_folders_on_one_machine_are_not_asked_what_is_the_machines() -> None:
    readings = healthy()
    for name in NAMES:
        seen = copy.deepcopy(next(n for n in readings.nodes if n.name == name).look or {})
        kept = ("root", "home", "took", "names", "clock", "disk", "disk_speed", "processor", "files", "runs")
        seen = {key: seen[key] for key in kept} | {"names": {"hostname": "pc", "lead_to": {}, "loopback": ["pc"]}}
        readings = with_node(readings, name, managed=False, met={}, sudo=None, look=seen, links=None)
    verdict = judge(readings)
    assert verdict.ok, verdict.wrong
    done = {probe.name for probe in verdict.probes if not probe.skipped}
    assert done == {"ssh", "clock", "disk", "processor", "versions", "runs", "all-reduce"}


# -- whose fault ---------------------------------------------------------------------------------------------------


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


@given(
    st.sets(
        st.sampled_from(
            [name for name in FAULTS if FAULTS[name][1] in ("clock", "power", "apt", "names", "sudo", "runs")]
        ),
        min_size=1,
    )
)
def test_faults_of_different_kinds_do_not_hide_each_other(chosen: set[str]) -> None:
    readings, expected = healthy(), set()
    for name in chosen:
        spoil, probe, _, _ = FAULTS[name]
        readings = spoil(readings)
        expected.add((probe, "left"))
    assert expected == set(wrong(readings))


@given(st.sets(st.sampled_from(sorted(healthy().nodes[0].look or {})), min_size=1))
def test_whatever_cannot_be_read_the_rest_is_judged_without_a_crash(lost: set[str]) -> None:
    seen = copy.deepcopy(healthy().nodes[1].look or {})
    seen |= dict.fromkeys(lost - {"root", "took"}) | ({"took": {}} if "took" in lost else {})
    assert judge(with_node(healthy(), "left", look=seen)).ok


# -- turns of the pairs --------------------------------------------------------------------------------------------


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


# -- what is decided on the way ------------------------------------------------------------------------------------


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
    assert decided(reached="refused")["why"] == "a does not reach b: it could not end well"
    assert "at 10 Mbit/s it would take 31 s" in str(decided(mbit=10.0)["why"])
    away = {"look": {"files": {"torch": True}, "network": {"card": "", "links": []}}}
    gone = motley_doctor_collective(["a", "b"], {"a": told(), "b": {"motley_doctor_as_root": away}}, True)
    assert str(gone["why"]).startswith("fewer than two"), "nobody could call it at its address"
    alone = motley_doctor_collective(["a", "b"], {"a": told(), "b": {}}, True)
    assert str(alone["why"]).startswith("fewer than two")


def test_a_look_without_root_stands_in_and_the_cards_own_packet_size_is_taken() -> None:
    hostvars = {"a": {"motley_doctor_as_root": {"failed": True}, "motley_doctor_as_user": {"look": {"x": 1}}}, "b": {}}
    assert motley_doctor_looks(["a", "b"], hostvars) == {"a": {"x": 1}}
    assert (
        motley_doctor_mtu({"network": {"card": "e", "links": [{"name": "d", "mtu": 1}, {"name": "e", "mtu": 9000}]}})
        == 9000
    )
    assert motley_doctor_mtu({}) == 1500


def test_a_file_of_a_phase_that_others_write_too_may_be_edited_but_not_emptied(tmp_path) -> None:
    hosts = tmp_path / "hosts"
    before = "127.0.0.1 localhost\n"
    hosts.write_text(with_block(before, "10.0.0.1 head"))
    after = digest(hosts)
    assert undone(hosts, after, before) == ""
    hosts.write_text(hosts.read_text() + "10.9.9.9 printer\n")
    assert undone(hosts, after, before) == ""
    hosts.write_text("10.9.9.9 printer\n")
    assert undone(hosts, after, before) == "no block"
    hosts.write_text(before)
    assert undone(hosts, after, before) == "back"
    unit = tmp_path / "x.service"
    unit.write_text("other")
    assert undone(unit, after, None) == "edited" and undone(unit, "", None) == ""
    unit.unlink()
    assert undone(unit, after, None) == "gone"


def test_the_drivers_own_fault_numbers_are_read_from_the_kernels_log() -> None:
    log = "kernel: NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    assert xids(f"NVRM: loading\n{log}NVRM: Xid (PCI:0000:02:00): 13, Graphics Exception") == ["79", "13"]


def test_a_process_knows_when_it_began() -> None:
    code = "import time; time.sleep(0.5); from plugins.module_utils.lan import started; print(started())"
    before = time.time()
    began = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert before - 0.05 <= began < time.time() - 0.45


# -- showing and mending -------------------------------------------------------------------------------------------


def test_every_finding_marks_the_line_of_a_probe() -> None:
    for spoil, probe, _, _ in FAULTS.values():
        marked = [line for line in show.lines(judge(spoil(healthy())), 1.0) if line.startswith("  ✗")]
        assert len(marked) == 1 and "left: see below" in marked[0], (probe, marked)


def test_a_person_sees_a_line_a_probe_then_each_finding_with_its_mend() -> None:
    spoiled = with_part(with_links(healthy(), LEFT, loss_percent=30.0), "head", "names", loopback=["head"])
    lines = show.lines(judge(spoiled), 21.0)
    marks = {line.split()[1]: line.split()[0] for line in lines[: len(PROBES)]}
    assert lines[2].endswith("head: see below"), lines[2]
    assert {name for name, mark in marks.items() if mark == "✗"} == {"names", "round"}
    at = lines.index(next(line for line in lines if line.startswith("✗ head  names:")))
    assert lines[at + 1] == "    fix: make bootstrap PHASE=hostname LIMIT=head   (FIX=yes does it)"
    assert lines[-1] == "21 probes on 3 nodes in 21 s · 2 findings"
    assert max(map(len, lines)) < 240


def test_what_is_alike_on_several_nodes_is_told_once() -> None:
    spoiled = with_part(healthy(), "left", "firewall", on=False)
    lines = show.lines(judge(with_part(spoiled, "right", "firewall", on=False)), 1.0)
    (told,) = [line for line in lines if line.startswith("✗")]
    assert told.startswith("✗ left, right  firewall: ")
    assert "make bootstrap PHASE=firewall LIMIT=left,right " in lines[lines.index(told) + 1]
    assert lines[-1].endswith("2 findings")


def test_what_is_shown_survives_the_way_from_ansible() -> None:
    verdict = judge(met(state="off")(healthy()))
    assert verb.from_data(show.as_data(verdict, 3.0)) == verdict


def test_fix_takes_the_safe_phases_in_their_order_and_nothing_else() -> None:
    spoiled = with_part(healthy(), "left", "names", loopback=["left"])
    spoiled = with_part(spoiled, "left", "firewall", on=False)
    spoiled = with_part(spoiled, "right", "firewall", on=False)
    spoiled = with_part(spoiled, "head", "network", card="")
    assert ("network", "head") in wrong(spoiled)
    assert verb.by_nodes(judge(spoiled).wrong) == {("left",): ["hostname", "firewall"], ("right",): ["firewall"]}
