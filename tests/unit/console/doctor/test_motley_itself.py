"""The doctor on what is Motley's own: runs, versions, and phases of bootstrap that somebody undid."""

from dataclasses import replace

import pytest

from console.doctor import show
from console.doctor.judge import judge
from console.doctor.readings_and_findings import Readings
from plugins.module_utils.motley.undo_record import digest, undone, with_block
from tests.support.readings import CARD, NAMES, healthy, with_links, with_node, with_part
from tests.support.spoiled import only, wrong


def test_a_run_that_is_on_is_not_disturbed_and_its_cards_are_not_in_use_by_others() -> None:
    readings = healthy()
    for name in NAMES:
        readings = with_part(readings, name, "runs", on=True, run="qa", agents=[5])
        readings = with_part(readings, name, "gpu", shown=[CARD | {"memory.used": "7000", "utilization.gpu": "99"}])
    verdict = judge(replace(readings, no_collective="skipped"))
    assert verdict.ok, verdict.wrong
    skipped = {probe.name: probe.seen for probe in verdict.probes if probe.skipped}
    assert skipped.keys() == {"throughput", "processor", "all-reduce"}
    assert "run qa is running" in skipped["throughput"]
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


def test_versions_are_judged_as_check_versions_does() -> None:
    seen = dict(healthy().nodes[1].versions or {})
    finding = only(with_node(healthy(), "left", versions=seen | {"environment": "zzz", "torch": "2.10.0"}))
    assert (finding.probe, finding.phase, finding.safe) == ("versions", "python_env", True)
    assert "environment is zzz, the others abc123" in finding.what
    drivers = [key for key in seen if "driver" in key]
    old = with_node(healthy(), "left", versions=seen | dict.fromkeys(drivers, "570.1"))
    assert only(old).what.startswith("driver is 570.1, the others 580.95.05") and not only(old).safe
    assert judge(with_node(healthy(), "left", versions=seen | dict.fromkeys(drivers))).ok
    broken = with_node(old, "left", driver_fault="the module is 570.1, the library 580\nfix: x")
    assert wrong(broken) == [("driver", "left")]


def test_a_changed_file_of_the_environment_names_its_package() -> None:
    seen = dict(healthy().nodes[1].versions or {}) | {"environment": "abc123, changed: numpy (numpy/version.py)"}
    finding = only(with_node(healthy(), "left", versions=seen))
    assert finding.what == "environment is not as it was installed: changed: numpy (numpy/version.py)"
    assert finding.safe and finding.fix == "./motley bootstrap --phase python_env --nodes left"


def test_it_is_said_whether_every_file_was_read() -> None:
    def said(readings: Readings) -> str:
        return next(probe.seen for probe in judge(readings).probes if probe.name == "versions")

    full = replace(healthy(), full=True)
    assert "read" not in said(healthy()) and said(full).endswith(", every file read")
    assert "files not read: run qa is running" in said(with_part(full, "head", "runs", on=True, run="qa", agents=[5]))


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


@pytest.mark.parametrize(
    ("rule", "cause", "fix"),
    [
        ("paused", "paused until 18:00", "./motley unpause --nodes left"),
        ("in use", "in use by hl2_linux", "close that program"),
        ("on battery", "on battery", "plug it in"),
        ("hours", "outside its hours 22:00-07:00, until 22:00", "comes back automatically"),
    ],
)
def test_a_machine_that_steps_aside_is_said_and_is_no_fault(rule: str, cause: str, fix: str) -> None:
    aside = {"rule": rule, "cause": cause}
    verdict = judge(with_part(healthy(), "left", "runs", on=True, run="qa", agents=[5], aside=aside))
    (finding,) = [finding for finding in verdict.findings if finding.node == "left" and finding.probe == "runs"]
    assert finding.note and finding.what == f"it steps aside from run qa: {cause}" and fix in finding.fix
