"""The doctor on graphics cards: hot, in use, lost, and what is none of it."""

from console.doctor.judge import judge
from plugins.module_utils.motley.driver_packages import xids
from tests.support.readings import healthy, with_node
from tests.support.spoiled import card, disk, part, wrong


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
