"""Every fault that the lab can make → the doctor's finding, by its name and on its node; a healthy lab → none.

Several faults at once, on different nodes or of different kinds: a round is inject, ask, compare all of it, fix.
"""

import json
import os
import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from lab import faults
from lab.profile import CLUSTER_HOME as HOME
from lab.profile import PASSWORD, USER
from tests.support.bootstrap import Person, Said, hint

HEAD, LAPTOP, OLD = "gpu-master", "gpu-worker-1", "gpu-worker-2"

INVISIBLE = {
    "reboot": "is over when the node is back, and all that bootstrap did starts with it",
    "newer-packages": "is in the package sources only; driver and kernel are held, so nothing of the node changes",
    "570-leads-to-580": "is in the package sources only, like newer-packages",
    "own-key": "is firmware that accepts more than it has to",
    "encrypted-disk": "matters at a restart only; whoever is asked about one is reminded of it",
    "secure-boot": "stands in nobody's way as long as the modules are signed, as those that bootstrap chooses are",
}


@dataclass(frozen=True)
class Fault:
    node: str
    name: str
    """Of the lab, or what a person has done by hand (BY_HAND)."""
    finding: str
    """Empty: invisible by nature, see INVISIBLE."""
    settings: dict[str, float | str] = field(default_factory=dict)


# What somebody undid by hand: how, and how it is put back.
BY_HAND = {
    "firewall flushed": ("nft flush ruleset", "systemctl restart motley-firewall"),
    "owner's rule": (
        "nft 'add table inet owner; add chain inet owner input { type filter hook input priority 0; }; "
        "add rule inet owner input ct state established accept; "
        "add rule inet owner input tcp dport { 29450-29460, 33000-34000 } drop'",
        "nft delete table inet owner",
    ),
    "hosts block gone": (
        "cp -p /etc/hosts /root/hosts; sed -i '/^# motley begin$/,/^# motley end$/d' /etc/hosts",
        "cat /root/hosts > /etc/hosts",
    ),
    "unit disabled": (
        "systemctl -q disable --now motley-run.path",
        "systemctl -q enable --now motley-run.path",
    ),
    "orphan": (
        f"systemd-run -q --collect --unit=orphan --uid={USER} -p Environment=MOTLEY_HOME={HOME} sleep 900",
        "systemctl -q stop orphan",
    ),
    "settings name the old card": (
        f"printf 'run: qa\\ninterface: enp6s0\\n' > {HOME}/config/cluster_config.yaml",
        f"rm {HOME}/config/cluster_config.yaml",
    ),
}

SAFE = [
    Fault(HEAD, "orphan", "runs"),
    Fault(LAPTOP, "unit disabled", "phases"),
    Fault(OLD, "firewall flushed", "firewall"),
]
FOR_A_PERSON = [
    Fault(HEAD, "gpu-busy", "gpu in use"),
    Fault(LAPTOP, "on-battery", "power"),
    Fault(LAPTOP, "gpu-hot", "gpu throttled"),
    Fault(OLD, "driver-mismatch", "driver"),
]
ROUNDS: dict[str, list[Fault]] = {
    "access": [
        Fault(HEAD, "apt-lock", "apt"),
        Fault(HEAD, "gpu-lost", "gpu"),
        Fault(HEAD, "hosts block gone", "names"),
        Fault(LAPTOP, "wrong-password", "sudo"),
        Fault(OLD, "no-sudo", "sudo"),
    ],
    "drivers": [
        Fault(HEAD, "driver-none", "driver"),
        Fault(LAPTOP, "newer-packages", ""),
        Fault(LAPTOP, "owner's rule", "ports"),
        Fault(OLD, "driver-570", "versions"),
    ],
    "silence": [
        Fault(HEAD, "loopback-name", "names"),
        Fault(HEAD, "disk-full", "disk"),
        Fault(LAPTOP, "power-cut", "reach"),
        Fault(OLD, "freeze", "reach"),
    ],
    "unplugged": [
        Fault(HEAD, "570-leads-to-580", ""),
        Fault(HEAD, "own-key", ""),
        Fault(HEAD, "encrypted-disk", ""),
        Fault(LAPTOP, "cable-pull", "reach"),
        Fault(OLD, "suspend", "reach"),
    ],
    "throttled": [
        Fault(HEAD, "cpu-throttle", "processor"),
    ],
    "slow": [
        Fault(LAPTOP, "slow-link", "throughput", {"rate_mbit": 20.0}),
    ],
    "late": [
        Fault(OLD, "delay", "round trip", {"delay_ms": 20.0}),
    ],
    "lossy, and a renamed card": [
        Fault(LAPTOP, "delay", "loss", {"delay_ms": 1.0, "loss_percent": 6.0}),
        Fault(OLD, "settings name the old card", "network"),
        Fault(OLD, "nic-renamed", "network"),
    ],
    "restarted and reinstalled": [
        Fault(HEAD, "reboot", ""),
        Fault(OLD, "secure-boot", ""),
        Fault(OLD, "processor-graphics", "driver"),
        Fault(LAPTOP, "reinstalled", "host key"),
    ],
}
ALWAYS = ("access", "silence")
"""The others are left to make test-long: tests/unit/console/doctor has the judgement of each."""
MEASURED = {"slow": [], "throttled": ["--limit", HEAD]}
"""Rounds that need the probes which load the machines; a throttled one would slow the measurements of the others."""


class Doctor:
    def __init__(self, person: Person) -> None:
        self.person = person

    def says(self, *words: str) -> Said:
        return self.person.types("doctor", *words)

    def finds(self, *words: str) -> dict[str, Any]:
        said = self.says("--json", *words)
        try:
            data = dict(json.loads(said.out))
        except ValueError:
            pytest.fail(said.out)
        assert said.rc == (0 if data["ok"] else 1)
        return data

    def breaks(self, fault: Fault) -> None:
        host = self.person.cluster[fault.node]
        if fault.name in BY_HAND:
            host.run("sh", "-c", BY_HAND[fault.name][0])
        else:
            faults.inject(self.person.cluster.lab, host, fault.name, fault.settings)

    def fixes(self, fault: Fault) -> None:
        host = self.person.cluster[fault.node]
        if fault.name in BY_HAND:
            host.run("sh", "-c", BY_HAND[fault.name][1])
        elif faults.FAULTS[fault.name].fix and fault.name in faults.injected(host):
            faults.fix(self.person.cluster.lab, host, fault.name)


def findings_of(chosen: list[Fault]) -> set[tuple[str, str]]:
    return {(fault.node, fault.finding) for fault in chosen if fault.finding}


def wrong(data: dict[str, Any]) -> set[tuple[str, str]]:
    return {(finding["node"], finding["probe"]) for finding in data["findings"] if not finding["note"]}


@pytest.fixture(scope="module")
def doctor(ready_trio: Person) -> Doctor:
    """The phases that they lack are brought to them."""
    ready_trio.writes(
        motley_gpu_driver_manage=True,
        motley_gpu_driver_compiler=False,  # tests/roles/test_gpu_driver.py
        motley_python_env_manage=True,
        motley_python_env_sets=["node-cpu"],  # the cards are simulated: nothing can compute on them
        motley_proof_collective=False,
    )
    lacking = "hostname,firewall,clock,power,gpu_driver,python_env"
    secret = {"ansible_become_password": PASSWORD}
    ready_trio.cluster.play("playbooks/bootstrap.yml", ready_trio.inventory, tags=lacking, extravars=secret).went_well()
    return Doctor(ready_trio)


def test_a_healthy_lab_has_no_finding_and_every_probe_was_done(doctor: Doctor) -> None:
    data = doctor.finds()
    told = {probe["name"]: probe["seen"] for probe in data["probes"]}
    assert data["ok"] and wrong(data) == set(), data["findings"]
    assert not [probe for probe in data["probes"] if probe["skipped"]], told
    assert told["all-reduce"].startswith("19 MB, gloo, 3 nodes") and "two and two" in told["all-reduce"]


def test_a_run_that_is_on_is_not_disturbed(doctor: Doctor) -> None:
    host = doctor.person.cluster[HEAD]
    agent = "import time; time.sleep(900)"
    unit = f"systemd-run -q --collect --unit=agent --uid={USER} -p Environment=MOTLEY_HOME={HOME}"
    host.run(*unit.split(), "python3", "-c", agent, "train", "agent")
    try:
        data = doctor.finds()
    finally:
        host.run("systemctl", "stop", "agent")
    assert data["ok"], data["findings"]
    skipped = {probe["name"]: probe["seen"] for probe in data["probes"] if probe["skipped"]}
    assert skipped.keys() == {"throughput", "processor", "all-reduce"}
    assert all("is running on gpu-master" in why for why in skipped.values()), skipped


def test_fix_does_the_safe_ones_and_leaves_the_rest_to_a_person(doctor: Doctor) -> None:
    try:
        for fault in [*SAFE, *FOR_A_PERSON]:
            doctor.breaks(fault)
        said = doctor.says("--fix", "--quick")
    finally:
        for fault in FOR_A_PERSON:
            doctor.fixes(fault)
    assert said.rc == 1, said.out
    does_now = re.findall(r"(?m)^FIX does now: (\S+)  ([^:]+): ", said.out)
    leaves = re.findall(r"(?m)^FIX leaves to you: (\S+)  ([^:]+): ", said.out)
    assert (set(does_now), set(leaves)) == (findings_of(SAFE), findings_of(FOR_A_PERSON)), said.out
    typed = hint(f"bootstrap --phase firewall --nodes {OLD}")
    assert re.search(f"FIX does now: {OLD}  firewall: {typed}", said.out), said.out
    assert f"FIX leaves to you: {LAPTOP}  power: plug it in" in said.out
    assert f"{HEAD}  ended processes of an older run" in said.out
    assert said.out.rstrip().endswith(f"{len(FOR_A_PERSON)} findings"), said.out
    hosts = doctor.person.cluster
    assert hosts[HEAD].outcome("systemctl", "is-active", "orphan").returncode != 0
    assert hosts[LAPTOP].outcome("systemctl", "is-active", "motley-run.path").returncode == 0
    assert hosts[OLD].outcome("nft", "list", "table", "inet", "motley").returncode == 0


def test_without_a_password_and_by_ansible_alone(doctor: Doctor) -> None:
    said = doctor.person.launches(playbook="playbooks/doctor.yml", motley_doctor_load="false").went_well()
    assert "no password was given: probes that need root are skipped" in said.out and "· healthy" in said.out


def test_an_unknown_node_is_bad_input(doctor: Doctor) -> None:
    said = doctor.person.types("doctor", limit="gpu-worker-9")
    assert said.rc == 2 and "there is no node 'gpu-worker-9'" in said.out


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.long) for name in ROUNDS]
)
def test_faults_are_found_by_name_and_node_and_nothing_else_is(doctor: Doctor, name: str) -> None:
    chosen = ROUNDS[name]
    try:
        for fault in chosen:
            doctor.breaks(fault)
        data = doctor.finds(*MEASURED.get(name, ["--quick"]))
    finally:
        for fault in reversed(chosen):
            doctor.fixes(fault)
    found = wrong(data)
    if name == "throttled" and os.getloadavg()[0] > (os.cpu_count() or 1):  # on a crowded processor it is only noted
        found |= {(f["node"], f["probe"]) for f in data["findings"] if f["note"] and f["probe"] == "processor"}
    assert found == findings_of(chosen), json.dumps(data["findings"], indent=1)


def test_every_fault_of_the_lab_is_in_the_table_or_invisible_by_nature() -> None:
    every = [*SAFE, *FOR_A_PERSON, *(fault for chosen in ROUNDS.values() for fault in chosen)]
    assert set(faults.FAULTS) <= {fault.name for fault in every}
    assert {fault.name for fault in every if not fault.finding} == set(INVISIBLE)
