"""The doctor on one machine: disk, power, processor, clock."""

from console.doctor.judge import judge
from tests.support.readings import healthy, with_part
from tests.support.spoiled import card, disk, only


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


def test_a_busy_machine_is_noted_and_a_throttled_one_is_found() -> None:
    busy = judge(with_part(healthy(), "left", "processor", share=0.1, load=60.0))
    assert busy.ok and "other programs" in busy.findings[0].what
    assert not judge(with_part(healthy(), "left", "processor", share=0.1, load=6.0)).ok


def test_a_limit_of_power_and_a_closed_lid_are_notes() -> None:
    readings = card(**{"power.limit": "150.00", "power.default_limit": "220.00"})(healthy())
    readings = with_part(readings, "left", "power", lid="closed")
    verdict = judge(readings)
    assert verdict.ok and [finding.probe for finding in verdict.findings] == ["power", "gpu"]
    assert "150 of 220 W" in verdict.findings[1].what
