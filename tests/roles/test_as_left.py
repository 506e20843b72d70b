"""A second bootstrap passes over what is as it was left, and meets whatever somebody has changed behind its back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.host import Host
from lab.profile import USER
from tests.support import small_set
from tests.support.bootstrap import Person, Said
from tests.support.cluster import Cluster

NODES = ("gpu-master", "gpu-worker-1", "gpu-worker-2")
PHASES = "ssh_trust hostname static_ip firewall clock power gpu_driver python_env workspace run".split()
HOME = f"/home/{USER}/ai-cluster"
YAML = f"{HOME}/env/lib/python3*/site-packages/yaml/__init__.py"
# Each breaks what one phase has left; then what shows that it is whole again.
BROKEN = {
    "ssh_trust": (f"sed -i '/motley@gpu-master/d' /home/{USER}/.ssh/authorized_keys",
                  f"grep -q motley@gpu-master /home/{USER}/.ssh/authorized_keys"),
    "hostname": ("hostname strange", "test $(hostname) = gpu-worker-1"),
    "static_ip": ("sed -i 's/# Written by Motley/# mine: &/' /etc/netplan/60-motley.yaml",
                  "! grep -q mine /etc/netplan/60-motley.yaml"),
    "firewall": ("nft flush chain inet motley guard", "nft list table inet motley | grep -q 29400-29899"),
    "clock": ("systemctl --quiet disable systemd-timesyncd", "systemctl is-enabled --quiet systemd-timesyncd"),
    "power": ("rm /etc/apt/apt.conf.d/90-motley", "test -s /etc/apt/apt.conf.d/90-motley"),
    "gpu_driver": ("apt-mark unhold $(apt-mark showhold | grep '^libnvidia-compute')",
                   "apt-mark showhold | grep -q '^libnvidia-compute'"),
    "python_env": (f"echo 'raise SystemExit' >> $(echo {YAML})", f"! grep -q SystemExit $(echo {YAML})"),
    "workspace": (f"echo '# mine' >> {HOME}/code/train/__init__.py", f"! grep -q mine {HOME}/code/train/__init__.py"),
    "run": ("systemctl stop motley-run.path", "systemctl is-active --quiet motley-run.path"),
}  # fmt: skip

STANDS_ON = {"gpu_driver": ["python_env", "workspace"], "python_env": ["workspace"]}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def person(trio: Cluster, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Person:
    """With cards (simulated) and an environment of some small packages: all phases have something to leave."""
    person = Person(trio, tmp_path_factory.mktemp("person"))
    requirements = small_set.make(person.folder / "requirements")
    python = trio.hosts[0].run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    small_set.fetch(requirements, python, cache)
    write(person)
    first = person.bootstraps(MOTLEY_CACHE=str(cache))
    # An installer leaves the time service as we do.
    assert ran(first) == [phase for phase in PHASES if phase != "clock"] and all(first.changed().values())
    return person


def write(person: Person, **more: object) -> None:
    person.writes(
        motley_gpu_driver_manage=True,
        motley_python_env_manage=True,
        motley_python_env_sets=["small"],
        motley_python_env_requirements=str(person.folder / "requirements"),
        motley_proof_collective=False,  # there is no torch in it
        **more,
    )


def ran(said: Said, node: str = NODES[0]) -> list[str]:
    phases = said.receipt["nodes"][node]["phases"]
    return [name for name in PHASES if name in phases and not phases[name]["as_left"]]


@pytest.fixture
def afterwards(person: Person) -> Iterator[Person]:
    yield person
    write(person)


def test_nothing_runs_where_all_is_as_it_was_left(person: Person) -> None:
    said = person.bootstraps()
    assert ran(said) == [] and set(said.changed().values()) == {0}, said.out
    for node in NODES:
        assert f"as it was left: {', '.join(PHASES)}" in said.out and "reaches every other by name" in said.proven(node)
    for promise in ("reaches every node by key", "leads to its own address"):
        assert promise in said.proven(NODES[0])


def test_check_reports_nothing(person: Person) -> None:
    said = person.types("bootstrap", "--check")
    assert said.rc == 0 and set(said.changed().values()) == {0} and ran(said) == [], said.out


def test_a_phase_that_is_asked_for_by_name_runs(person: Person) -> None:
    said = person.bootstraps(phase="static_ip")
    assert ran(said) == ["static_ip"] and not set(PHASES[:2]) & set(said.receipt["nodes"][NODES[0]]["phases"])


def test_all_that_somebody_changed_since_is_met(person: Person, cache: Path) -> None:
    host = person.cluster[NODES[2]]
    for phase, (breaks, whole) in BROKEN.items():
        host.run("bash", "-ec", breaks)
        assert host.outcome("bash", "-c", whole.replace(NODES[1], NODES[2])).returncode != 0, phase
    said = person.bootstraps(MOTLEY_CACHE=str(cache))
    assert ran(said) == PHASES, said.out
    for phase, (_, whole) in BROKEN.items():
        assert host.outcome("bash", "-c", whole.replace(NODES[1], NODES[2])).returncode == 0, phase
        changed = {name: node["phases"][phase]["changed"] for name, node in said.receipt["nodes"].items()}
        assert changed[NODES[2]] and not changed[NODES[0]] and not changed[NODES[1]], (phase, changed)


@pytest.mark.long
@pytest.mark.parametrize("phase", BROKEN)
def test_what_somebody_changed_since_is_met(person: Person, cache: Path, phase: str) -> None:
    host: Host = person.cluster[NODES[1]]
    breaks, whole = BROKEN[phase]
    host.run("bash", "-ec", breaks)
    assert host.outcome("bash", "-c", whole).returncode != 0
    said = person.bootstraps(MOTLEY_CACHE=str(cache))
    assert ran(said) == [phase, *STANDS_ON.get(phase, [])], said.out
    assert host.outcome("bash", "-c", whole).returncode == 0, said.out
    changed = {name: node["phases"][phase]["changed"] for name, node in said.receipt["nodes"].items()}
    assert changed[NODES[1]] and not changed[NODES[0]] and not changed[NODES[2]], changed


def test_another_inventory_is_met(afterwards: Person) -> None:
    write(afterwards, motley_firewall_ports="29400-29898")
    said = afterwards.bootstraps()
    assert ran(said) == ["firewall"] and set(said.changed().values()) == {1}, said.out


@pytest.mark.long
def test_an_undone_phase_is_met(person: Person) -> None:
    person.bootstraps()
    assert person.types("undo", phase="power").rc == 0
    assert ran(person.bootstraps()) == ["power"]
