"""From what an installer left to a proven cluster, and back byte for byte: three machines of different installers.

On each base, one phase after the other: `make test-long`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.demo_sites import fetch_wheels
from lab.host import Host
from lab.profile import USER
from tests.support import cluster as clusters
from tests.support.bootstrap import Person
from tests.support.photograph import differences, photographed

MIXED = (
    "gpu-master=server-2604",
    "gpu-worker-1=desktop-2404,lived-in,encrypted,igpu-only",
    "gpu-worker-2=debian-root,debian-ifupdown",
)
# The CPU build of torch that is at hand is for Debian 12's Python.
MIXED_TO_TRAIN = (
    "gpu-master=desktop-2404,lived-in",
    "gpu-worker-1=debian-root,debian-ifupdown",
    "gpu-worker-2=desktop-2404,encrypted,igpu-only",
)
ONE_BY_ONE = ("ssh_trust", "hostname", "static_ip", "firewall", "clock", "power", "workspace", "run", "all")
ON_EACH_BASE = {"bookworm": MIXED_TO_TRAIN, "trixie": MIXED, "forky": MIXED}  # Debian 12 has no sudo-rs
# A package that was not there, in dpkg's list and in apt's.
INSTALLED = r"\+[a-z0-9.+-]+(:\w+)?( \S+ ii )?"


@pytest.fixture
def mixed(lab_allowed: None, tmp_path: Path) -> Iterator[Person]:
    yield from three(tmp_path, None, MIXED)


def three(folder: Path, suite: str | None, shape: tuple[str, ...]) -> Iterator[Person]:
    with clusters.hosts(f"s{folder.stat().st_ino % 10**9}", "trio", suite, shape=shape) as lab:
        yield Person(clusters.Cluster(lab, folder), folder)


def has(host: Host, *names: str) -> bool:
    return any(shape.name in names for shape in host.shapes)


def consented(person: Person) -> dict[str, dict[str, str]]:
    """What their owner writes down of machines whose address is in /etc/network/interfaces."""
    return {
        host.name: {"motley_static_ip_adopt": "netplan"}
        for host in person.cluster.hosts
        if has(host, "debian-ifupdown")
    }


def gives_sudo_where_it_is_missing(person: Person) -> None:
    """By the one command that it is told."""
    without = [host for host in person.cluster.hosts if has(host, "debian-root")]
    if not without:
        return
    said = person.types("bootstrap")
    assert said.rc != 0, said.out
    command = re.search(r'su - -c ".+?"', said.out)
    assert command, said.out
    for host in without:
        assert host.name in said.out
        host.run("apt-get", "-qq", "update")
        host.run("env", f"USER={USER}", "sh", "-ec", command[0])


def amiss(person: Person) -> set[str]:
    """The doctor's probes that found something wrong."""
    looked = person.types("doctor", "--json")
    verdict = json.loads(looked.out)
    print(looked.out)
    return {finding["probe"] for finding in verdict["findings"] if not finding["note"]}


def but_what_was_installed(host: Host, changed: list[str]) -> list[str]:
    """An undo leaves packages, as docs/machines.md says: here netplan, what it needs, their files and their units."""
    added = [line[1:] for line in changed if re.fullmatch(INSTALLED, line)]
    names = {line.split()[0] for line in added}
    files = set(host.run("dpkg-query", "-L", *names).split()) if names else set()
    theirs = {file.lstrip("/") for file in files} | {Path(file).name for file in files if "/systemd/system/" in file}
    rest = [line for line in changed if line[1:] not in added]
    return [line for line in rest if line[0] != "+" or not theirs & {word.lstrip("/") for word in line[1:].split()}]


def goes_there_and_back(person: Person, *phases: str) -> None:
    assert person.types("check").rc == 0
    gives_sudo_where_it_is_missing(person)
    found = []
    for phase in phases:
        found.append((phase, photographed(person)))
        person.bootstraps(phase="" if phase == "all" else phase)
    again = person.bootstraps()
    assert set(again.changed().values()) == {0}, again.out
    assert amiss(person) == {"versions"}, "no environment was asked for; all else is in order"
    for phase, before in reversed(found):
        if phase == "all" and len(found) > 1:
            continue  # each of its phases is undone by itself
        person.types("undo", phase=phase).went_well()
        after = photographed(person)
        for host in person.cluster.hosts:
            changed = differences(before[host.name], after[host.name])
            if has(host, "debian-ifupdown"):
                changed = but_what_was_installed(host, changed)
            assert not changed, f"{phase} on {host.name}"


@pytest.mark.long
def test_three_differently_installed_machines_go_there_and_back(mixed: Person) -> None:
    mixed.writes(consented(mixed))
    goes_there_and_back(mixed, "all")


@pytest.mark.long
def test_three_differently_installed_machines_train_together(lab_allowed: None, tmp_path: Path) -> None:
    """Every phase, the environment with it, then a run to its adapter."""
    fetch_wheels("3.11", "tiny")
    quick = ("model=tiny", "rows_per_step=6", "max_seq_length=64", "max_steps=6", "run=mine")
    for person in three(tmp_path, "bookworm", MIXED_TO_TRAIN):
        threads = {"motley_render_environment": {"OMP_NUM_THREADS": 1}}  # three machines share these cores
        person.writes(consented(person), motley_python_env_manage=True, **threads)
        gives_sudo_where_it_is_missing(person)
        person.bootstraps()
        again = person.bootstraps()
        assert set(again.changed().values()) == {0}, again.out
        assert not amiss(person)
        launched = person.types("launch", *(word for setting in quick for word in ("-e", setting)))
        assert launched.rc == 0 and "3 of 3" in launched.out, launched.out
        fetched = person.types("fetch", "--run", "mine", "--results", str(tmp_path / "results"))
        assert fetched.rc == 0 and (tmp_path / "results/mine/adapter/adapter_model.safetensors").exists(), fetched.out
        person.types("undo", phase="all").went_well()


@pytest.mark.long
@pytest.mark.parametrize("suite", ON_EACH_BASE)
def test_each_phase_goes_there_and_back_on_each_base(lab_allowed: None, tmp_path: Path, suite: str) -> None:
    for person in three(tmp_path, suite, ON_EACH_BASE[suite]):
        person.writes(consented(person))
        goes_there_and_back(person, *ONE_BY_ONE)
