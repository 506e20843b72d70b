"""The doctor where it may not look, or cannot: dead nodes, no root, silent parts, folders of one machine."""

from console.doctor.judge import judge
from plugins.filter.doctor import motley_doctor_looks, motley_doctor_mtu
from tests.support.readings import NAMES, healthy, look, with_node, with_part
from tests.support.spoiled import contact, wrong


def test_a_dead_node_is_one_finding_and_the_others_are_judged() -> None:
    dead = contact(state="off")(healthy())
    two = with_part(dead, "right", "clock", skew_s=99.0)
    assert wrong(two) == [("reach", "left"), ("clock", "right")]
    assert "2 of 3" in {probe.name: probe.seen for probe in judge(dead).probes}["names"]


def test_all_dead_is_said_of_each_and_nothing_else_is_claimed() -> None:
    readings = healthy()
    for name in NAMES:
        off = {"state": "off", "tried": ["x"]}
        readings = with_node(readings, name, contact=off, look=None, links=None, versions=None, collective=None)
    verdict = judge(readings)
    assert [finding.probe for finding in verdict.wrong] == ["reach"] * 3
    assert all(probe.skipped for probe in verdict.probes if probe.name != "ssh")


def test_without_root_what_needs_it_is_left_out_with_a_sentence() -> None:
    readings = healthy()
    for name in NAMES:
        hidden = {"root": False, "phases": None, "units": None, "firewall": None, "apt": {"holder": None}}
        readings = with_node(readings, name, look=look(name) | hidden, sudo=None)
    verdict = judge(readings)
    assert verdict.ok
    left_out = {probe.name: probe.seen for probe in verdict.probes if probe.skipped}
    assert left_out.keys() == {"sudo", "firewall", "apt", "phases"}
    assert left_out["sudo"].startswith("no password was given") and left_out["apt"] == "it needs sudo"


def test_a_part_that_could_not_be_read_says_why() -> None:
    readings = healthy()
    for name in NAMES:
        unread = {"clock": None, "troubles": {"clock": "OSError: timedatectl"}}
        readings = with_node(readings, name, look=look(name) | unread)
    assert {p.name: p.seen for p in judge(readings).probes if p.skipped} == {"clock": "OSError: timedatectl"}


def test_folders_on_one_machine_are_not_asked_what_is_the_machines() -> None:
    readings = healthy()
    for name in NAMES:
        kept = ("root", "home", "took", "names", "clock", "disk", "disk_speed", "processor", "files", "runs")
        seen = {key: look(name)[key] for key in kept} | {"names": {"hostname": "pc", "lead_to": {}, "loopback": ["pc"]}}
        readings = with_node(readings, name, managed=False, contact={}, sudo=None, look=seen, links=None)
    verdict = judge(readings)
    assert verdict.ok, verdict.wrong
    done = {probe.name for probe in verdict.probes if not probe.skipped}
    assert done == {"ssh", "clock", "disk", "processor", "versions", "runs", "all-reduce"}


def test_a_look_without_root_stands_in_and_the_cards_own_packet_size_is_taken() -> None:
    hostvars = {"a": {"motley_doctor_as_root": {"failed": True}, "motley_doctor_as_user": {"look": {"x": 1}}}, "b": {}}
    assert motley_doctor_looks(["a", "b"], hostvars) == {"a": {"x": 1}}
    cards = [{"name": "d", "mtu": 1}, {"name": "e", "mtu": 9000}]
    assert motley_doctor_mtu({"network": {"nic": "e", "links": cards}}) == 9000
    assert motley_doctor_mtu({}) == 1500
