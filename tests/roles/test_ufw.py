"""A machine whose owner uses ufw keeps it: Motley's rules are ufw's rules, and go with an undo."""

import time
from pathlib import Path

import pytest

from tests.support.bootstrap import Person
from tests.support.cluster import Cluster

HEAD, FRIEND = "gpu-master", "gpu-worker-1"


@pytest.fixture
def person(fresh_trio: Cluster, tmp_path: Path) -> Person:
    person = Person(fresh_trio, tmp_path)
    person.writes(motley_static_ip_manage=False)
    install = "apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq -y install ufw >&2"
    # The owner's own rule denies the LAN: Motley's must stand before it.
    rules = "ufw allow ssh; ufw deny from 10.77.0.0/24 to any port 29500 proto tcp; ufw --force enable"
    person.cluster[HEAD].run("sh", "-ec", f"{install}; {rules}")
    return person


def test_ufw_lets_nodes_in_and_strangers_not(person: Person) -> None:
    # Addresses are left to the router here: the ones that they have are the ones that they shall have.
    specs = {host.name: host.spec.installed_address for host in person.cluster.hosts}
    nodes = {name: {"motley_address": address, "motley_current_address": None} for name, address in specs.items()}
    person.writes(nodes, motley_static_ip_manage=False)
    head = person.cluster[HEAD]
    before = head.run("ufw", "show", "added")
    person.bootstraps(phase="firewall")
    assert head.outcome("nft", "list", "table", "inet", "motley").returncode != 0
    listen = "import socket,time; s=socket.create_server(('',29500)); time.sleep(90)"
    head.run("systemd-run", "--quiet", "--collect", "--unit=listens", "python3", "-c", listen)
    time.sleep(1)
    knock = ["timeout", "3", "bash", "-c", f"exec 3<>/dev/tcp/{specs[HEAD]}/29500"]
    assert person.cluster[FRIEND].outcome(*knock).returncode == 0
    assert person.cluster.stranger(*knock, timeout_s=10).returncode != 0
    assert set(person.bootstraps(phase="firewall").changed().values()) == {0}
    assert person.types("undo", phase="firewall").rc == 0
    assert head.run("ufw", "show", "added") == before
