"""The doctor: each reading that shows a fault is one finding on its node, with its cause and its fix. No host."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.doctor import show
from console.doctor.judge import PROBES, judge
from tests.support.readings import healthy, lan_card, look, with_links, with_node
from tests.support.spoiled import LEFT, Spoil, card, contact, links, node, only, part, wrong


def test_a_healthy_cluster_has_no_finding_and_every_probe_says_what_it_saw() -> None:
    verdict = judge(healthy())
    assert verdict.ok and verdict.findings == []
    assert [probe.name for probe in verdict.probes] == list(PROBES)
    assert all(probe.seen and not probe.skipped for probe in verdict.probes)
    assert {probe.name: probe.seconds for probe in verdict.probes}["all-reduce"] == 8.0


DOCKER = lan_card("10.0.0.77", name="docker0")


FAULTS: dict[str, tuple[Spoil, str, str, str]] = {
    # what happened: (how the readings change, finding, words of its cause, words of its fix)
    "off": (contact(state="off"), "reach", "nobody answers at 10.0.0.2", "wake it"),
    "hangs": (contact(state="off", knock="silent"), "reach", "it hangs", "power button"),
    "held off": (contact(state="off", knock="closed"), "reach", "blocks this computer", "wait two minutes"),
    "no sshd": (contact(state="off", knock="refused"), "reach", "no SSH server", "openssh-server"),
    "reinstalled": (contact(state="changed", pinned_on="2026-01-01"), "host key", "pinned on 2026", "--repin left"),
    "copied": (contact(state="double", twin="head"), "host key", "same host key as head", "ssh_host_"),
    "stranger": (contact(state="new"), "host key", "not pinned", "./motley bootstrap"),
    "address swapped": (contact(state="off", twin="head"), "reach", "head answers at", "ip -4"),
    "key refused": (node(look=None, unreachable="Permission denied (publickey)"), "ssh", "refuses", "phase ssh_trust"),
    "wrong password": (node(sudo="Incorrect sudo password"), "sudo", "not for sudo", "--sudo-password ask"),
    "no sudo": (node(sudo="user is not in the sudoers file"), "sudo", "may not use sudo", "adduser $USER sudo"),
    "full, unreadable": (node(look=None, look_failed="No space left on device"), "disk", "disk is full", "du -xhd1"),
    "127.0.1.1": (part("names", loopback=["left"]), "names", "loopback", "--phase hostname --nodes left"),
    "hosts gone": (part("names", lead_to={"left": "10.0.0.2"}), "names", "head leads to nothing", "--phase hostname"),
    "other name": (part("names", hostname="debian"), "names", "its hostname is debian", "--phase hostname"),
    "address lost": (part("network", nic=""), "network", "on none of its network cards", "static_ip --nodes left"),
    "tailscale": (
        part("network", routes={"head": {"nic": "tailscale0", "source": "100.64.0.2"}}),
        "network", "to head by tailscale0", "ip route get",
    ),
    "docker0 overlaps": (links(DOCKER), "network", "docker0 (10.0.0.77/24) is in the same network", "docker0 down"),
    "address taken": (part("network", also_has_address="02:aa"), "network", "also answers for 10.0.0.2", "another"),
    "card renamed": (part("files", interface="eth7"), "network", "last run used eth7", "./motley launch --resume "),
    "never guarded": (part("firewall", kind="none", on=False), "firewall", "never done", "phase firewall --nodes left"),
    "flushed": (part("firewall", on=False), "firewall", "not loaded", "--phase firewall --nodes left"),
    "friend missing": (part("firewall", friends=["10.0.0.2", "10.0.0.1"]), "firewall", "keep out right", "phase fire"),
    "ufw rule gone": (part("firewall", kind="ufw", gone=["allow from 10.0.0.1"]), "firewall", "allow from", "--phase"),
    "probe port taken": (node(link_failed="port 29892 is taken there", links=None), "ports", "29892", "--phase"),
    "half duplex": (links(duplex="half"), "link", "half duplex", "another cable"),
    "100 Mbit": (links(mbit=100), "link", "runs at 100 Mbit/s", "all eight wires"),
    "small packets": (links(mtu=1400), "packets", "packets of 1400 bytes", "mtu 1500"),
    "late": (lambda r: with_links(r, LEFT, rtt_ms=41.0), "round trip", "late, there and back: 41 ms to head", "cable"),
    "uneven": (lambda r: with_links(r, LEFT, jitter_ms=9.0), "round trip", "unevenly", "cable"),
    "lossy": (lambda r: with_links(r, LEFT, loss_percent=30.0), "loss", "packets are lost: 30 %", "cable"),
    "slow": (lambda r: with_links(r, LEFT, mbit_to=18.0), "throughput", "far slower", "another cable"),
    "clock": (part("clock", skew_s=-95.0), "clock", "-95 s off", "--phase clock --nodes left"),
    "battery": (part("power", battery=True, on_mains=False, percent="71"), "power", "on battery (71 %)", "plug it in"),
    "slow disk": (part("disk_speed", write_mb_s=1.5), "disk", "writes 1.5 MB/s", "dmesg"),
    "throttled core": (part("processor", share=0.1), "processor", "something throttles it", "top"),
    "apt": (part("apt", holder="unattended-upgr (process 7)"), "apt", "apt is busy: unattended", "let it finish"),
    "gpu lost": (part("gpu", cards=[{"bus": "0000:01:00.0", "lost": True}], xid="79"), "gpu", "bus (Xid 79)", "off"),
    "gpu hot": (card(**{"reasons": "0x48", "temperature.gpu": "95"}), "gpu throttled", "95 °C", "clean it"),
    "game": (card(**{"memory.used": "5000"}), "gpu in use", "4.9 of 8 GB", "close that program"),
    "game, drawing": (part("gpu", drawing="hl2_linux"), "gpu in use", "in use by hl2_linux", "motley_step_aside: auto"),
    "game, computing": (card(**{"utilization.gpu": "97"}), "gpu in use", "97 % busy", "close that program"),
    "driver": (node(driver_fault="no driver is installed\nfix: ./motley bootstrap --phase gpu_driver"), "driver",
               "no driver is installed", "--phase gpu_driver --nodes left"),
    "phase undone": (
        part("units", **{"motley-run.path": {"phase": "run", "enabled": "disabled", "active": "inactive"}}),
        "phases", "motley-run.path is disabled and inactive", "--phase run --nodes left",
    ),
    "orphans": (part("runs", orphans=[7, 8]), "runs", "2 processes of an older run", "./motley stop"),
    "wanted": (part("runs", wanted=True, unit="failed"), "runs", "none is running (its unit: failed", "./motley logs"),
    "no all-reduce": (node(collective_failed="timed out\nfix: ./motley check"), "all-reduce", "timed out", "check"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_finding_on_its_node_with_cause_and_fix_and_marks_its_probes_line(name: str) -> None:
    spoil, probe, cause, fix = FAULTS[name]
    spoiled = spoil(healthy())
    finding = only(spoiled)
    assert (finding.probe, finding.node) == (probe, "left")
    assert cause in finding.what and fix in finding.fix, finding
    assert "\n" not in finding.what + finding.fix and "{" not in finding.what + finding.fix
    (marked,) = [line for line in show.lines(judge(spoiled), 1.0) if line.startswith("  ✗")]
    assert "left: see below" in marked


def test_a_run_of_one_node_alone_names_no_network_card_to_compare() -> None:
    assert judge(part("files", interface="lo")(healthy())).ok


APART = [name for name in FAULTS if FAULTS[name][1] in ("clock", "power", "apt", "names", "sudo", "runs")]


@given(st.sets(st.sampled_from(APART), min_size=1))
def test_faults_of_different_kinds_do_not_hide_each_other(chosen: set[str]) -> None:
    readings, expected = healthy(), set()
    for name in chosen:
        spoil, probe, _, _ = FAULTS[name]
        readings = spoil(readings)
        expected.add((probe, "left"))
    assert expected == set(wrong(readings))


@given(st.sets(st.sampled_from(sorted(healthy().nodes[0].look or {})), min_size=1))
def test_whatever_cannot_be_read_the_rest_is_judged_without_a_crash(lost: set[str]) -> None:
    seen = look("left")
    seen |= dict.fromkeys(lost - {"root", "took"}) | ({"took": {}} if "took" in lost else {})
    assert judge(with_node(healthy(), "left", look=seen)).ok
