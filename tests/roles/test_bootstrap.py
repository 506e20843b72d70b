"""The whole of bootstrap on machines as an installer leaves them: once, again, after somebody has changed something,
and taken back. With drivers (simulated cards) and an environment of some small packages.

In `make test-long` also with the whole CPU set, up to the all-reduce; and on each other base one phase after the other,
so that each phase's undo is held against what that phase found.
"""

import json
import re
import subprocess

import pytest

from lab.profile import PASSWORD, USER
from tests.conftest import BASES
from tests.support import pace, small_set
from tests.support.bootstrap import Person, Said, python_of
from tests.support.cluster import Cluster
from tests.support.photograph import Photographs, differences, photographed

NODES = ("gpu-master", "gpu-worker-1", "gpu-worker-2")
TRAINING_PORT = 29500
OWN, *OTHERS = BASES
SMALL = pytest.param(OWN, "small")
WHOLE = [pytest.param(OWN, "whole", marks=pytest.mark.long)]
ON_OTHERS = [pytest.param(*other.values, "one by one", marks=other.marks) for other in OTHERS]


def on(*setups):
    return pytest.mark.parametrize(("trio_on_each_base", "how"), setups, indirect=True, scope="module")


each, here, long = on(SMALL, *WHOLE, *ON_OTHERS), on(SMALL), on(*WHOLE, *ON_OTHERS)
OTHER_PORTS = "29400-29898"
HOME = f"/home/{USER}/ai-cluster"
YAML = f"{HOME}/env/lib/python3*/site-packages/yaml/__init__.py"
PHASES_ALONE = "ssh_trust hostname static_ip firewall clock power gpu_driver workspace run".split()
"""Where no set fits: one by one."""
PHASES = "ssh_trust hostname static_ip firewall clock power gpu_driver python_env workspace run".split()
# Each breaks what one phase has left; then what shows that it is whole again.
BROKEN = {
    "ssh_trust": (f"sed -i '/motley@gpu-master/d' /home/{USER}/.ssh/authorized_keys",
                  f"grep -q motley@gpu-master /home/{USER}/.ssh/authorized_keys"),
    "hostname": ("hostname strange", "test $(hostname) = gpu-worker-1"),
    "static_ip": ("sed -i 's/# Written by Motley/# mine: &/' /etc/netplan/60-motley.yaml",
                  "! grep -q mine /etc/netplan/60-motley.yaml"),
    "firewall": ("nft flush chain inet motley guard", f"nft list table inet motley | grep -q {OTHER_PORTS}"),
    "clock": ("systemctl --quiet disable systemd-timesyncd", "systemctl is-enabled --quiet systemd-timesyncd"),
    "power": ("rm /etc/apt/apt.conf.d/90-motley", "test -s /etc/apt/apt.conf.d/90-motley"),
    "gpu_driver": ("apt-mark unhold $(apt-mark showhold | grep '^libnvidia-compute')",
                   "apt-mark showhold | grep -q '^libnvidia-compute'"),
    "python_env": (f"echo 'raise SystemExit' >> $(echo {YAML})", f"! grep -q SystemExit $(echo {YAML})"),
    "workspace": (f"echo '# mine' >> {HOME}/code/train/__init__.py", f"! grep -q mine {HOME}/code/train/__init__.py"),
    "run": ("systemctl stop motley-run.path", "systemctl is-active --quiet motley-run.path"),
}  # fmt: skip


@pytest.fixture(scope="module")
def how(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def person(trio_on_each_base: Cluster, how: str, tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(trio_on_each_base, tmp_path_factory.mktemp("person"))
    if how == "small":
        small_set.fetch(small_set.make(person.folder / "requirements"), python_of(person), person.folder / "cache")
    if how == "whole" and (reason := small_set.why_not_fetched(python_of(person))):
        pytest.skip(f"NOT RUN: {reason}")
    write(person, how)
    return person


def write(person: Person, how: str, **more: object) -> None:
    if how != "one by one":
        more |= {"motley_gpu_driver_manage": True, "motley_python_env_manage": True}
    if how == "small":  # there is no torch in it
        more |= {"motley_python_env_sets": ["small"], "motley_proof_collective": False}
        more |= {"motley_python_env_requirements": str(person.folder / "requirements")}
    if how == "whole":  # the cards are simulated: nothing can compute on them
        more |= {"motley_python_env_sets": ["node-cpu"]}
    person.writes(**more)


def bootstraps(person: Person, how: str, phase: str = "") -> Said:
    return person.bootstraps(phase=phase, **({"MOTLEY_CACHE": str(person.folder / "cache")} if how == "small" else {}))


def changed(said: Said, node: str) -> list[str]:
    phases = said.receipt["nodes"][node]["phases"]
    return [name for name in PHASES if name in phases and phases[name]["changed"]]


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
    said = person.types("bootstrap", "--check").went_well()
    assert all(count > 0 for count in said.changed().values()), said.out
    assert "reaches every" not in said.proven(NODES[0]), "nothing is proven by not looking"
    log = (person.state / "logs/bootstrap.log").read_text()
    assert f"+{HOME}/models/checkpoints" in log and "+code." in log, "what the workspace would be"
    return photographed(person)


@pytest.fixture(scope="module")
def found(person: Person) -> dict[str, Photographs]:
    """What each phase that was asked for found on these machines, in their order."""
    return {}


@pytest.fixture(scope="module")
def bootstrapped(person: Person, how: str, checked: Photographs, found: dict[str, Photographs]) -> Person:
    for phase in PHASES_ALONE if how == "one by one" else ["all"]:
        found[phase] = photographed(person) if found else checked
        said = bootstraps(person, how, "" if phase == "all" else phase)
        print(said.out)
        assert set(said.changed()) == set(NODES)
    return person


@each
def test_check_changes_nothing(before: Photographs, checked: Photographs) -> None:
    for name in NODES:
        assert not differences(before[name], checked[name]), name


@each
def test_every_machine_has_its_name_and_address(bootstrapped: Person) -> None:
    for host in bootstrapped.cluster.hosts:
        assert host.run("hostname").strip() == host.name
        assert f" {host.spec.address}/24 " in host.run("ip", "-br", "-4", "address") + " "
        assert host.spec.installed_address not in host.run("ip", "-br", "-4", "address")
        assert "\n127.0.1.1" not in host.run("cat", "/etc/hosts")
        for other in bootstrapped.cluster.hosts:
            assert host.run("getent", "hosts", other.name).split() == [other.spec.address, other.name]


@on(SMALL, *WHOLE)  # phases alone install nothing that takes long
def test_it_was_kept_awake_meanwhile_and_may_sleep_again(bootstrapped: Person) -> None:
    for host in bootstrapped.cluster.hosts:
        host.run("journalctl", "--sync")
        told = host.run("journalctl", "-u", "motley-set-up", "-o", "cat", "--no-pager")
        assert "--what=sleep:idle" in told and "Failed" not in told, told
        assert "Motley" not in host.run("systemd-inhibit", "--list", "--no-legend")


@each
def test_all_phases_are_proven(bootstrapped: Person, how: str) -> None:
    receipts = [receipt for receipt in bootstrapped.whole_receipts() if receipt["outcome"] == "proven"]
    done = {name: {phase for r in receipts for phase in r["nodes"].get(name, {}).get("phases", {})} for name in NODES}
    wanted = PHASES_ALONE if how == "one by one" else [*PHASES, "proof"]
    assert all(set(wanted) <= phases for phases in done.values()), done


@on(SMALL, *WHOLE)
def test_what_it_proved_of_cards_and_nodes_is_told(bootstrapped: Person) -> None:
    receipt = next(r for r in bootstrapped.whole_receipts() if r["outcome"] == "proven")
    head = receipt["nodes"][NODES[0]]["phases"]
    assert any("gcc libc6-dev libpython" in line for line in head["gpu_driver"]["says"]), head["gpu_driver"]
    assert any("a kernel can be built" in line for line in head["gpu_driver"]["proven"]), head["gpu_driver"]
    for promise in ("every node reaches every other by name", "head starts programs on every worker", "same software"):
        assert any(promise in line for line in head["proof"]["proven"]), head["proof"]


@on(*WHOLE)  # test_loopback.py and test_at_the_head.py compute together too
def test_all_phases_lead_to_nodes_that_compute_together(bootstrapped: Person) -> None:
    receipt = next(r for r in bootstrapped.whole_receipts() if r["outcome"] == "proven")
    head = receipt["nodes"][NODES[0]]["phases"]
    (said,) = [line for line in head["proof"]["says"] if "all-reduce" in line]
    measured = re.fullmatch(r"all-reduce 16 MB (\d+) ms = (\d+) % of the link \((\d+) Mbit/s, gloo, 3 nodes\)", said)
    assert measured and int(measured[2]) >= 10, said
    asked = bootstrapped.types("check-versions", "--json")
    told = json.loads(asked.out)
    assert asked.rc == 0 and told["versions"]["torch"] == dict.fromkeys(NODES, "2.13.0+cpu"), asked.out
    assert set(told["versions"]["driver"].values()) == {"580.95.05"}


@each
def test_the_head_reaches_the_workers_by_name_without_a_password(bootstrapped: Person) -> None:
    head = bootstrapped.cluster[NODES[0]]
    for worker in NODES[1:]:
        asked = ["runuser", "-u", USER, "--", "ssh", "-o", "BatchMode=yes", worker, "hostname"]
        assert head.run(*asked).strip() == worker


@each
def test_a_worker_does_not_reach_the_head_by_key(bootstrapped: Person) -> None:
    worker = bootstrapped.cluster[NODES[1]]
    own = ["-i", f"/home/{USER}/.ssh/motley_ed25519", "-o", "UserKnownHostsFile=/etc/ssh/motley_known_hosts"]
    asked = ["runuser", "-u", USER, "--", "ssh", "-o", "BatchMode=yes", *own, NODES[0], "true"]
    assert "Permission denied" in worker.outcome(*asked).stderr


@each
def test_what_keys_of_ones_own_open_they_open_still(bootstrapped: Person) -> None:
    for user in (USER, "root"):
        for way in (NODES[:2], NODES[1::-1]):
            assert opens(bootstrapped.cluster, user, *way), (user, way)
            assert opens(bootstrapped.cluster, user, *way, by_name=True), (user, way)


@each
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


@each
def test_the_guard_stays_when_nftables_starts_again(bootstrapped: Person) -> None:
    host = bootstrapped.cluster[NODES[2]]
    host.outcome("systemctl", "restart", "nftables")  # empties all tables, as a package upgrade does
    shown = lambda: host.outcome("nft", "list", "table", "inet", "motley").stdout  # noqa: E731
    # systemctl waits for nftables alone, not for what starts again with it
    pace.until(lambda: "29400-29899" in shown(), 20, "the guard did not come back")
    assert host.run("systemctl", "is-enabled", "motley-firewall").strip() == "enabled"
    assert "network-pre.target" in host.run("systemctl", "show", "-P", "Before", "motley-firewall"), "after the network"
    host.run("nft", "delete", "table", "inet", "filter")  # nftables' own example, which its start brought along


@pytest.mark.long
@each
def test_check_of_a_converged_cluster_reports_nothing(bootstrapped: Person) -> None:
    said = bootstrapped.types("bootstrap", "--check")
    assert said.rc == 0 and set(said.changed().values()) == {0}, said.out


@long
def test_the_second_run_changes_nothing(bootstrapped: Person, how: str) -> None:
    said = bootstraps(bootstrapped, how)
    assert set(said.changed().values()) == {0}, said.out
    proves_itself(said)


def proves_itself(said: Said) -> None:
    for promise in ("reaches every node by key", "leads to its own address", "every node reaches every other by name"):
        assert promise in said.proven(NODES[0])


@here
def test_all_that_somebody_changed_since_is_met_and_nothing_else_is_changed(bootstrapped: Person, how: str) -> None:
    """On one machine; and in the inventory a range of ports, which all get to know."""
    host = bootstrapped.cluster[NODES[2]]
    write(bootstrapped, how, motley_firewall_ports=OTHER_PORTS)
    for phase, (breaks, whole) in BROKEN.items():
        host.run("bash", "-ec", breaks)
        assert host.outcome("bash", "-c", whole.replace(NODES[1], NODES[2])).returncode != 0, phase
    said = bootstraps(bootstrapped, how)
    assert [changed(said, name) for name in NODES] == [["firewall"], ["firewall"], PHASES], said.out
    proves_itself(said)
    for phase, (_, whole) in BROKEN.items():
        assert host.outcome("bash", "-c", whole.replace(NODES[1], NODES[2])).returncode == 0, phase


@each
def test_the_password_is_nowhere_on_the_controller(bootstrapped: Person) -> None:
    found = subprocess.run(
        ["grep", "-rlF", PASSWORD, str(bootstrapped.state)], capture_output=True, text=True, check=False
    )
    assert found.stdout == ""


@each
def test_the_receipt_can_be_read(bootstrapped: Person) -> None:
    pages = [page.read_text() for page in sorted((bootstrapped.state / "receipts").glob("*-bootstrap.html"))]
    assert any("bootstrap: proven" in page and "every name leads to its own address" in page for page in pages)
    assert any("bootstrap: check only" in page for page in pages)


@each
def test_undo_puts_everything_back(bootstrapped: Person, found: dict[str, Photographs]) -> None:
    for phase, photographs in reversed(found.items()):
        bootstrapped.types("undo", phase=phase).went_well()
        bootstrapped.cluster[NODES[2]].run("systemctl", "--quiet", "enable", "systemd-timesyncd")  # BROKEN disabled it
        after = photographed(bootstrapped)
        for name, photograph in photographs.items():
            assert not differences(photograph, after[name]), f"{phase} on {name}"
