"""Networks as other installers leave them: a server's, whose netplan file cloud-init wrote."""

import time
from pathlib import Path

import pytest

from lab.host import Host
from tests.support.bootstrap import Person
from tests.support.cluster import Cluster

SERVER = "gpu-worker-2"


@pytest.fixture
def person(trio: Cluster, tmp_path: Path) -> Person:
    person = Person(trio, tmp_path)
    person.writes()
    return person


def as_a_server(host: Host) -> None:
    """What Ubuntu Server's installer leaves: its answers, which cloud-init wrote down for netplan."""
    installers = "/etc/netplan/00-installer-config.yaml"
    host.run("sh", "-ec", f"mv {installers} /etc/netplan/50-cloud-init.yaml; mkdir -p /etc/cloud/cloud.cfg.d")
    host.run("sh", "-c", "cat > /etc/cloud/cloud.cfg.d/90-installer-network.cfg", stdin="network: {version: 2}\n")
    host.run("netplan", "apply")
    host.wait_until_up()


def addresses(host: Host) -> dict[str, list[str]]:
    lines = host.run("ip", "-br", "-4", "address").splitlines()
    return {words[0].split("@")[0]: words[2:] for words in map(str.split, lines)}


def files(host: Host) -> str:
    everything = "cd /etc; find netplan systemd cloud -type f -o -type l | sort"
    return host.run("sh", "-c", f"{everything} | xargs ls -l --time-style=+ ; {everything} | xargs tail -n +1")


def assert_has(host: Host, wanted: dict[str, list[str]]) -> None:
    """Its other cards may need a moment longer than the one through which it was met."""
    end = time.monotonic() + 15
    while addresses(host) != wanted and time.monotonic() < end:
        time.sleep(0.5)
    assert addresses(host) == wanted


def test_cloud_init_no_longer_writes_the_network_until_an_undo(person: Person) -> None:
    host = person.cluster[SERVER]
    lan, spare = host.spec.nics
    as_a_server(host)
    before, before_files = addresses(host), files(host)

    person.bootstraps(limit=SERVER, phase="static_ip")
    assert_has(host, before | {lan: [f"{host.spec.address}/24"]})
    merged = (
        "import yaml, glob; print([yaml.safe_load(open(f)) for f in sorted(glob.glob('/etc/cloud/cloud.cfg.d/*'))])"
    )
    assert host.run("python3", "-c", merged).strip().endswith("{'network': {'config': 'disabled'}}]")
    theirs = host.run("cat", "/etc/netplan/50-cloud-init.yaml")
    assert spare in theirs and f"{lan}:" not in theirs
    assert person.bootstraps(limit=SERVER, phase="static_ip").changed() == {SERVER: 0}

    said = person.types("undo", limit=SERVER, phase="static_ip")
    assert said.rc == 0, said.out
    assert_has(host, before)
    assert files(host) == before_files
