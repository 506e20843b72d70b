"""The doctor on one machine: disk, power, processor, and graphics cards: hot, in use, lost, and what is none of it."""

from console.doctor.judge import judge
from plugins.module_utils.motley.driver_packages import xids
from tests.support.readings import healthy, with_node, with_part
from tests.support.spoiled import card, disk, only, part, wrong


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


def test_a_hot_card_at_full_load_is_not_also_in_use_but_a_full_one_is() -> None:
    hot = {"reasons": "0x48", "utilization.gpu": "97"}
    assert wrong(card(**hot)(healthy())) == [("gpu throttled", "left")]
    full = card(**hot, **{"memory.used": "6000"})(healthy())
    assert wrong(full) == [("gpu throttled", "left"), ("gpu in use", "left")]


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


def test_a_lost_compiler_is_one_finding_with_the_phase_that_brings_it() -> None:
    fault = "there is no C compiler\nfix: ./motley bootstrap --phase gpu_driver; if not: x"
    lost = with_node(healthy(), "left", driver_fault=fault)
    assert wrong(lost) == [("driver", "left")]
    assert judge(lost).wrong[0].fix == "./motley bootstrap --phase gpu_driver --nodes left; if not: x"


def test_the_drivers_own_fault_numbers_are_read_from_the_kernels_log() -> None:
    log = "kernel: NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    assert xids(f"NVRM: loading\n{log}NVRM: Xid (PCI:0000:02:00): 13, Graphics Exception") == ["79", "13"]


def test_graphics_that_were_switched_off_are_one_finding_with_the_command() -> None:
    off = part("gpu", cards=[], shown=[], switched_off="prime-select")(healthy())
    assert wrong(off) == [("driver", "left")]
    fixes = [finding.fix for finding in judge(off).findings]
    assert "on left: sudo prime-select on-demand && sudo reboot" in fixes[0]
