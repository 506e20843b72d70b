"""Machines that are off are woken over the lab's network: their cards armed by bootstrap, put back by undo."""

from __future__ import annotations

import pytest

from lab import faults
from lab.host import Host
from tests.support import pace
from tests.support.bootstrap import Person
from tests.support.cluster import Cluster

HEAD, LAPTOP = "gpu-master", "gpu-worker-1"


@pytest.fixture(scope="module")
def person(pair: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person.with_inventory(pair, tmp_path_factory.mktemp("person"))
    assert not armed(pair[LAPTOP])
    for phase in ("ssh_trust", "power"):
        person.types("bootstrap", phase=phase).went_well()
    return person


def armed(host: Host) -> bool:
    return "Wake-on: g" in host.run("ethtool", host.cable.nic)


def switched_off(host: Host) -> None:
    host.outcome("systemctl", "poweroff")
    pace.until(lambda: not host.running, 60, "it stays on")


@pytest.mark.long
def test_who_is_off_is_woken_from_another_node_and_is_armed_again(person: Person) -> None:
    laptop = person.cluster[LAPTOP]
    assert armed(laptop)
    switched_off(laptop)
    said = person.types("wake").went_well()
    assert f"{HEAD}    is awake" in said.out and f"{LAPTOP}  awake after " in said.out
    pace.until(lambda: armed(laptop), 60, "its card was not armed at its start")
    assert person.types("wake", limit=LAPTOP).rc == 0


@pytest.mark.long
def test_the_head_is_woken_by_the_controller_itself(person: Person) -> None:
    for host in person.cluster.hosts:
        switched_off(host)
    person.types("wake", limit=HEAD).went_well()
    assert not person.cluster[LAPTOP].running
    assert person.types("wake").rc == 0


@pytest.mark.long
def test_who_sleeps_is_woken(person: Person) -> None:
    faults.inject(person.cluster.lab, person.cluster[LAPTOP], "suspend")
    said = person.types("wake")
    assert said.rc == 0 and f"{LAPTOP}  awake after " in said.out, said.out
    assert faults.injected(person.cluster[LAPTOP]) == []


@pytest.mark.long
def test_one_that_was_put_back_does_not_wake_and_is_named(person: Person) -> None:
    laptop = person.cluster[LAPTOP]
    person.types("undo", phase="power", limit=LAPTOP).went_well()
    assert not armed(laptop)
    switched_off(laptop)
    said = person.types("wake")
    assert said.rc == 1 and f"{LAPTOP}  did not wake within 60 s" in said.out, said.out
    laptop.boot()
