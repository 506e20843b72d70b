"""The whole of bootstrap on machines as an installer leaves them, on every base: once, again, and taken back.

On the machine's own base with drivers (simulated cards) and the whole CPU set, up to the all-reduce; on others without,
and there one phase after the other, so that each phase's undo is held against what that phase found.
"""

import json
import re
import subprocess

import pytest

from lab import base
from lab.profile import PASSWORD, USER
from tests.support import pace, small_set
from tests.support.bootstrap import Person, taken_back_soon
from tests.support.cluster import Cluster
from tests.support.photograph import Photographs, differences, photographed

NODES = ("gpu-master", "gpu-worker-1", "gpu-worker-2")
TRAINING_PORT = 29500
WITH_ALL = {
    "motley_gpu_driver_manage": True,
    "motley_python_env_manage": True,
    "motley_python_env_sets": ["node-cpu"],  # the cards are simulated: nothing can compute on them
}
ONE_BY_ONE = "ssh_trust hostname static_ip firewall clock power gpu_driver workspace run"
PHASES = "ssh_trust hostname static_ip firewall clock power gpu_driver artifacts python_env workspace run proof"


@pytest.fixture(scope="module")
def person(trio_on_each_base: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(trio_on_each_base, tmp_path_factory.mktemp("person"))
    if whole(person):
        if reason := small_set.why_no_cpu_set(python_of(person)):
            pytest.skip(f"NOT RUN: {reason}")
        person.writes(**WITH_ALL)
    else:
        person.writes()
    return person


def whole(person: Person) -> bool:
    return person.cluster.lab.suite == base.default_suite()


def python_of(person: Person) -> str:
    return person.cluster.hosts[0].run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()


@pytest.fixture(scope="module")
def before(person: Person) -> Photographs:
    has_keys_of_its_own(person.cluster)
    return photographed(person)


def has_keys_of_its_own(cluster: Cluster) -> None:
    """Of the login user and of root, on the head and on a worker; each opens root's account on the other."""
    for name in NODES[:2]:
        for user in (USER, "root"):
            made = "umask 077; mkdir -p ~/.ssh; ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519; cat ~/.ssh/*.pub"
            key = cluster[name].run("runuser", "-u", user, "--", "sh", "-c", f"cd; {made}")
            for other in NODES[:2]:
                add = "mkdir -p -m 700 /root/.ssh && cat >> /root/.ssh/authorized_keys"
                cluster[other].run("sh", "-c", add, stdin=key)
    for user in (USER, "root"):
        assert all(opens(cluster, user, *way) for way in (NODES[:2], NODES[1::-1])), user


def opens(cluster: Cluster, user: str, here: str, there: str, *, by_name: bool = False) -> bool:
    addresses = cluster[there].run("hostname", "-I").split()
    where = there if by_name else next(a for a in addresses if a.startswith("10.77."))
    unknown = ["-o", "StrictHostKeyChecking=accept-new", "-o", "UserKnownHostsFile=/dev/null"]
    words = ["ssh", "-o", "BatchMode=yes", *unknown, f"root@{where}", "true"]
    return cluster[here].outcome("runuser", "-u", user, "--", *words).returncode == 0


@pytest.fixture(scope="module")
def checked(person: Person, before: Photographs) -> Photographs:
    """--check --diff on the fresh machines; then what they look like."""
    said = person.types("bootstrap", "--check")
    assert said.rc == 0, said.out
    assert all(count > 0 for count in said.changed().values()), said.out
    return photographed(person)


@pytest.fixture(scope="module")
def found(person: Person) -> dict[str, Photographs]:
    """What each phase that was asked for found on these machines, in their order."""
    return {}


@pytest.fixture(scope="module")
def bootstrapped(person: Person, checked: Photographs, found: dict[str, Photographs]) -> Person:
    for phase in ["all"] if whole(person) else ONE_BY_ONE.split():
        found[phase] = photographed(person) if found else checked
        said = person.bootstraps(phase="" if phase == "all" else phase)
        print(said.out)
        assert set(said.changed()) == set(NODES)
    return person


def test_check_changes_nothing(before: Photographs, checked: Photographs) -> None:
    for name in NODES:
        assert not differences(before[name], checked[name]), name


def test_every_machine_has_its_name_and_address(bootstrapped: Person) -> None:
    for host in bootstrapped.cluster.hosts:
        assert host.run("hostname").strip() == host.name
        assert f" {host.spec.address}/24 " in host.run("ip", "-br", "-4", "address") + " "
        assert host.spec.installed_address not in host.run("ip", "-br", "-4", "address")
        assert "\n127.0.1.1" not in host.run("cat", "/etc/hosts")
        for other in bootstrapped.cluster.hosts:
            assert host.run("getent", "hosts", other.name).split() == [other.spec.address, other.name]


def test_all_phases_lead_to_nodes_that_compute_together(bootstrapped: Person) -> None:
    if not whole(bootstrapped):  # nothing can compute on this base: the phases before are all that there is to see
        receipts = [r for r in bootstrapped.whole_receipts() if r["outcome"] == "proven"]
        done = [{phase for r in receipts for phase in r["nodes"].get(name, {}).get("phases", {})} for name in NODES]
        assert all(set(ONE_BY_ONE.split()) <= phases for phases in done), done
        return
    receipt = next(r for r in bootstrapped.whole_receipts() if r["outcome"] == "proven")
    for node in receipt["nodes"].values():
        assert set(PHASES.split()) <= set(node["phases"])
    head = receipt["nodes"][NODES[0]]["phases"]
    assert any("gcc libc6-dev libpython" in line for line in head["gpu_driver"]["says"]), head["gpu_driver"]
    assert any("a kernel can be built" in line for line in head["gpu_driver"]["proven"]), head["gpu_driver"]
    print({phase: told["seconds"] for phase, told in head.items()}, receipt["seconds"])
    for promise in ("every node reaches every other by name", "head starts programs on every worker", "same software"):
        assert any(promise in line for line in head["proof"]["proven"]), head["proof"]
    (said,) = [line for line in head["proof"]["says"] if "all-reduce" in line]
    measured = re.fullmatch(r"all-reduce 16 MB (\d+) ms = (\d+) % of the link \((\d+) Mbit/s, gloo, 3 nodes\)", said)
    assert measured and int(measured[2]) >= 10, said
    asked = bootstrapped.types("check-versions", "--json")
    told = json.loads(asked.out)
    assert asked.rc == 0 and told["versions"]["torch"] == dict.fromkeys(NODES, "2.13.0+cpu"), asked.out
    assert set(told["versions"]["driver"].values()) == {"580.95.05"}


def test_the_head_reaches_the_workers_by_name_without_a_password(bootstrapped: Person) -> None:
    head = bootstrapped.cluster[NODES[0]]
    for worker in NODES[1:]:
        asked = ["runuser", "-u", USER, "--", "ssh", "-o", "BatchMode=yes", worker, "hostname"]
        assert head.run(*asked).strip() == worker


def test_a_worker_does_not_reach_the_head_by_key(bootstrapped: Person) -> None:
    worker = bootstrapped.cluster[NODES[1]]
    own = ["-i", f"/home/{USER}/.ssh/motley_ed25519", "-o", "UserKnownHostsFile=/etc/ssh/motley_known_hosts"]
    asked = ["runuser", "-u", USER, "--", "ssh", "-o", "BatchMode=yes", *own, NODES[0], "true"]
    assert "Permission denied" in worker.outcome(*asked).stderr


def test_what_keys_of_ones_own_open_they_open_still(bootstrapped: Person) -> None:
    for user in (USER, "root"):
        for way in (NODES[:2], NODES[1::-1]):
            assert opens(bootstrapped.cluster, user, *way), (user, way)
            assert opens(bootstrapped.cluster, user, *way, by_name=True), (user, way)


def test_a_stranger_reaches_ssh_but_no_training_port(bootstrapped: Person) -> None:
    host, listen = bootstrapped.cluster[NODES[0]], f"import socket,time; s=socket.create_server(('',{TRAINING_PORT}));"
    host.run("systemd-run", "--quiet", "--collect", "--unit=listens", "python3", "-c", f"{listen} time.sleep(3600)")
    knock = "exec 3<>/dev/tcp/{}/{}".format
    try:
        friend, stranger = bootstrapped.cluster[NODES[1]], bootstrapped.cluster.stranger
        to_train = ["bash", "-c", knock(host.spec.address, TRAINING_PORT)]
        pace.until(lambda: friend.outcome(*to_train).returncode == 0, 60, "a friend is not let in")
        assert stranger("bash", "-c", knock(host.spec.address, 22)).returncode == 0
        assert stranger(*to_train).returncode != 0
    finally:
        host.run("systemctl", "stop", "listens")


def test_the_guard_stays_when_nftables_starts_again(bootstrapped: Person) -> None:
    host = bootstrapped.cluster[NODES[2]]
    host.outcome("systemctl", "restart", "nftables")  # empties all tables, as a package upgrade does
    shown = lambda: host.outcome("nft", "list", "table", "inet", "motley").stdout  # noqa: E731
    # systemctl waits for nftables alone, not for what starts again with it
    pace.until(lambda: "29400-29899" in shown(), 20, "the guard did not come back")
    assert host.run("systemctl", "is-enabled", "motley-firewall").strip() == "enabled"
    assert "network-pre.target" in host.run("systemctl", "show", "-P", "Before", "motley-firewall"), "after the network"
    host.run("nft", "delete", "table", "inet", "filter")  # nftables' own example, which its start brought along


@pytest.mark.long  # test_as_left.py has it with small packages
def test_the_second_run_changes_nothing(bootstrapped: Person) -> None:
    said = bootstrapped.bootstraps()
    assert set(said.changed().values()) == {0}, said.out
    for promise in ("reaches every node by key", "leads to its own address", "every node reaches every other by name"):
        assert promise in said.proven(NODES[0])


@pytest.mark.long  # test_as_left.py has it with small packages
def test_check_of_a_converged_cluster_reports_nothing(bootstrapped: Person) -> None:
    said = bootstrapped.types("bootstrap", "--check")
    assert said.rc == 0 and set(said.changed().values()) == {0}, said.out


def test_the_password_is_nowhere_on_the_controller(bootstrapped: Person) -> None:
    found = subprocess.run(
        ["grep", "-rlF", PASSWORD, str(bootstrapped.state)], capture_output=True, text=True, check=False
    )
    assert found.stdout == ""


def test_the_receipt_can_be_read(bootstrapped: Person) -> None:
    pages = [page.read_text() for page in sorted((bootstrapped.state / "receipts").glob("*-bootstrap.html"))]
    assert any("bootstrap: proven" in page and "every name leads to its own address" in page for page in pages)
    assert any("bootstrap: check only" in page for page in pages)


def test_undo_puts_everything_back(bootstrapped: Person, found: dict[str, Photographs]) -> None:
    for phase, photographs in reversed(found.items()):
        said = bootstrapped.types("undo", phase=phase)
        assert said.rc == 0, said.out
        after = photographed(bootstrapped)
        for name, photograph in photographs.items():
            assert not differences(photograph, after[name]), f"{phase} on {name}"


@pytest.mark.long  # test_network_drill.py
def test_a_change_that_cannot_be_confirmed_is_taken_back(person: Person) -> None:
    victim = person.cluster[NODES[1]]
    person.writes(motley_gateway="10.77.0.250", **taken_back_soon())
    said = person.types("bootstrap", limit=victim.name, phase="static_ip")
    assert said.rc == 1 and "nobody answers at the gateway 10.77.0.250" in said.out, said.out
    assert "it took the change back by itself" in said.out
    assert f" {victim.spec.installed_address}/24 " in victim.run("ip", "-br", "-4", "address")
