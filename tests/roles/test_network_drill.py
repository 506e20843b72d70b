"""The lockout drill: whatever goes wrong with a change of the network, nobody is locked out.

Whole bootstraps where the controller has a part in it; where the node is alone with it, its modules are called there.
"""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from lab import faults
from tests.support import one_node, pace
from tests.support.bootstrap import Person, taken_back_soon
from tests.support.cluster import Cluster

SOON_S = 4
"""Until an unconfirmed change is taken back, where no controller is waited for."""
HEAD, VICTIM, OTHER = "gpu-master", "gpu-worker-1", "gpu-worker-2"
pytestmark = pytest.mark.spoils(VICTIM)


@pytest.fixture
def person(fresh_trio: Cluster, tmp_path: Path) -> Person:
    return Person.with_inventory(fresh_trio, tmp_path)


def address_of(person: Person, name: str) -> str:
    """What its cable's card has now; empty while it has none."""
    nic = person.cluster[name].cable.nic
    return " ".join(person.cluster[name].run("ip", "-br", "-4", "address", "show", "dev", nic).split()[2:])


def installed(person: Person, name: str) -> str:
    return f"{person.cluster[name].spec.installed_address}/24"


def wanted(person: Person, name: str) -> str:
    return f"{person.cluster[name].spec.address}/24"


def family(pid: int) -> list[int]:
    """A process and all that descend from it, as far as they are still there."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [pid, *(one for child in children for one in family(int(child)))]


def killed(running: subprocess.Popen[str]) -> None:
    """As a power cut of the controller does it: with all that it has started."""
    for pid in family(running.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    running.wait()


def second_try_works(person: Person) -> None:
    one_node.moves(one_node.planned(person.cluster[VICTIM]))
    assert address_of(person, VICTIM) == wanted(person, VICTIM)


def is_back(person: Person) -> None:
    """By itself, with nothing of the change left."""
    host = person.cluster[VICTIM]
    pace.until(lambda: host.outcome("test", "-e", "/etc/netplan/60-motley.yaml").returncode != 0, 60)
    pace.until(lambda: address_of(person, VICTIM) == installed(person, VICTIM), 60)


def netplan_files(person: Person, name: str) -> str:
    return person.cluster[name].run("sh", "-c", "head -100 /etc/netplan/*")


def test_a_wrong_gateway_is_taken_back_and_the_right_one_works(person: Person) -> None:
    """Also where nothing below /var may be started."""
    person.cluster[VICTIM].run("sh", "-ec", "mount --bind /var /var; mount -o remount,bind,noexec /var")
    files = netplan_files(person, VICTIM)
    person.writes(motley_gateway="10.77.0.250", **taken_back_soon())
    said = person.types("bootstrap", limit=VICTIM, phase="static_ip")
    assert said.rc == 1
    assert "nobody answers at the gateway 10.77.0.250" in said.out
    assert f"answers at {person.cluster[VICTIM].spec.installed_address} as before" in said.out
    assert address_of(person, VICTIM) == installed(person, VICTIM)
    assert netplan_files(person, VICTIM) == files
    second_try_works(person)


@pytest.mark.long  # test_a_wrong_gateway_is_taken_back…
def test_a_wrong_subnet_is_taken_back_by_the_node_itself(person: Person) -> None:
    elsewhere = {HEAD: "10.88.0.100", VICTIM: "10.88.0.101", OTHER: "10.88.0.102"}
    person.writes(
        {name: {"motley_address": address} for name, address in elsewhere.items()},
        motley_subnet="10.88.0.0/24",
        motley_gateway="10.88.0.1",
        **taken_back_soon(),
    )
    said = person.types("bootstrap", limit=VICTIM, phase="static_ip")
    assert said.rc == 1 and "did not answer at 10.88.0.101" in said.out, said.out
    assert "took the change back by itself" in said.out
    assert address_of(person, VICTIM) == installed(person, VICTIM)
    second_try_works(person)


@pytest.mark.long  # tests/unit/plugins/modules/test_netplan_change.py
def test_a_way_back_that_is_not_done_yet_is_waited_for(person: Person) -> None:
    """The address may be there seconds before the node has told it to the network."""
    unit = ("--unit=motley-network-rollback", "sleep", str(min(55, pace.seconds(10))))
    person.cluster[VICTIM].run("systemd-run", "--quiet", "--collect", *unit)
    looked = one_node.looks(person.cluster[VICTIM])
    assert "for the way back of an earlier change of its network" in looked["motley_say"]
    second_try_works(person)


def test_an_address_that_is_taken_is_refused_before_anything_changes(person: Person) -> None:
    files = netplan_files(person, VICTIM)
    stranger = person.cluster.lab.profile.stranger
    said = one_node.planned(person.cluster[VICTIM], stranger).begins()
    assert said["failed"] and f"{stranger} is taken" in said["msg"] and "nothing was changed" in said["msg"], said
    assert netplan_files(person, VICTIM) == files


def test_killed_while_it_writes_and_its_cable_pulled_it_goes_back(person: Person) -> None:
    """As when its controller dies with the way to it: here nothing of the change is completed."""
    host, files = person.cluster[VICTIM], "test -e /etc/netplan/60-motley.yaml"
    kill = f"until {files}; do sleep 0.01; done; pkill -KILL -f '[n]etplan_change.py'"
    no_answer = pytest.raises(AssertionError, match="netplan_change gives no answer")
    with subprocess.Popen(host.inside("sh", "-c", kill)), no_answer:
        one_node.planned(host).begins(rollback_s=SOON_S)
    with person.cluster.suffers(VICTIM, "cable-pull"):
        pace.until(lambda: host.outcome("sh", "-c", files).returncode != 0, 60 + SOON_S)
    is_back(person)
    second_try_works(person)


@pytest.mark.parametrize("verb", ["bootstrap", pytest.param("undo", marks=pytest.mark.long)])
def test_a_controller_stopped_before_the_change_is_proven_goes_on_at_once(person: Person, verb: str) -> None:
    """The node is at its new address, and was to leave it soon."""
    person.writes(**taken_back_soon())
    running = person.starts("bootstrap", limit=VICTIM, phase="static_ip")
    pace.until(lambda: address_of(person, VICTIM) == wanted(person, VICTIM), 120)
    killed(running)
    person.types(verb, limit=VICTIM, phase="static_ip").went_well()
    assert address_of(person, VICTIM) == {"bootstrap": wanted, "undo": installed}[verb](person, VICTIM)
    timer = "motley-network-rollback.timer"
    assert person.cluster[VICTIM].outcome("systemctl", "is-active", "--quiet", timer).returncode != 0


def test_a_power_cut_during_the_change_does_no_harm(person: Person) -> None:
    host = person.cluster[VICTIM]
    assert one_node.planned(host).begins()["changed"]
    pace.until(lambda: address_of(person, VICTIM) == wanted(person, VICTIM), 60)
    faults.inject(person.cluster.lab, host, "power-cut")
    faults.fix(person.cluster.lab, host, "power-cut")
    is_back(person)
    second_try_works(person)


@pytest.mark.long  # tests/unit/plugins/filter/test_plan_netplan.py
def test_a_renamed_card_keeps_its_address_and_the_second_is_as_installed(person: Person) -> None:
    host = person.cluster[VICTIM]
    one_node.moves(one_node.planned(host))
    assert f"{host.spec.nics[1]}:\n      dhcp4: true\n      optional: true" in netplan_files(person, VICTIM)
    with person.cluster.suffers(VICTIM, "nic-renamed"):
        address = f" {wanted(person, VICTIM)} "
        pace.until(lambda: address in host.run("ip", "-br", "-4", "address"), 60)
        assert "enp99s0" in host.run("ip", "-br", "link")
        assert one_node.planned(host, reached_at=host.spec.address).begins()["changed"] is False


@pytest.mark.spoils(VICTIM, OTHER)
def test_two_nodes_swap_their_addresses(person: Person) -> None:
    mine, theirs = (person.cluster[name].spec.installed_address for name in (VICTIM, OTHER))
    person.writes({VICTIM: {"motley_address": theirs}, OTHER: {"motley_address": mine}})
    said = person.bootstraps(phase="static_ip", limit=f"{VICTIM},{OTHER}")
    assert "rollback disarmed" in said.out
    assert address_of(person, VICTIM) == f"{theirs}/24"
    assert address_of(person, OTHER) == f"{mine}/24"
    for name, address in ((VICTIM, theirs), (OTHER, mine)):
        again = one_node.planned(person.cluster[name], address, reached_at=address)
        assert again.begins()["changed"] is False
