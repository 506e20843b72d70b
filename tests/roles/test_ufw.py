"""Who is let in: nodes and controller to training ports, everybody to SSH wherever it is; by nftables, ufw, firewalld.

A machine whose owner uses ufw or firewalld keeps it: Motley's rules are rules of it, and go with an undo.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from lab.host import Host
from lab.shell import run
from tests.support import one_node, pace
from tests.support.artifacts import hand_on
from tests.support.bootstrap import Person
from tests.support.cluster import Cluster

HEAD, FRIEND, SOCKET = "gpu-master", "gpu-worker-1", "gpu-worker-2"
SSH_PORTS = {HEAD: 29600, FRIEND: 52222, SOCKET: 52222}
"""Beside 22, in a range that is guarded; the last one's sshd is started by systemd's socket."""
MOVED = "10.77.0.11"


@pytest.fixture(scope="module")
def person(trio: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Person:
    """The first test gives back what it has changed."""
    person = Person.with_inventory(trio, tmp_path_factory.mktemp("person"), motley_static_ip_manage=False)
    installs_beside_a_dead_source(person.cluster[HEAD], "ufw")
    # The owner lets in what no rule names; one of the rules denies the LAN: Motley's must stand before it.
    rules = "ufw default allow incoming; ufw allow ssh; ufw deny from 10.77.0.0/24 to any port 29500 proto tcp"
    person.cluster[HEAD].run("sh", "-ec", f"{rules}; ufw --force enable")
    # Here what no rule names is kept out; of SSH's ports the owner has named both.
    installs_beside_a_dead_source(person.cluster[SOCKET], "firewalld")
    pace.until(lambda: person.cluster[SOCKET].outcome("firewall-cmd", "--state").returncode == 0, 60, "no firewalld")
    person.cluster[SOCKET].run("firewall-cmd", "--quiet", "--permanent", f"--add-port={SSH_PORTS[SOCKET]}/tcp")
    person.cluster[SOCKET].run("firewall-cmd", "--quiet", "--reload")
    for name, port in SSH_PORTS.items():
        listens_elsewhere(person.cluster[name], port, by_socket=name == SOCKET)
    # Addresses are left to the router here: the ones that they have are the ones that they shall have.
    nodes = {
        host.name: {"motley_address": host.spec.installed_address, "motley_current_address": None}
        for host in person.cluster.hosts
    }
    person.writes(nodes, motley_static_ip_manage=False)
    return person


def installs_beside_a_dead_source(host: Host, package: str) -> None:
    """Its lists are empty, as those of a fresh machine, and one source is gone."""
    gone = "/etc/apt/sources.list.d/gone.list"
    host.run("sh", "-c", f"echo 'deb http://127.0.0.1:9 gone main' > {gone}")
    told = [one_node.runs(host, "apt_packages", names=[package]).get("changed") for _ in range(2)]
    assert told == [True, False]
    host.run("rm", gone)


def listens_elsewhere(host: Host, port: int, *, by_socket: bool) -> None:
    if by_socket:
        more = f"mkdir -p /etc/systemd/system/ssh.socket.d; printf '[Socket]\\nListenStream={port}\\n'"
        host.run("sh", "-ec", f"{more} > /etc/systemd/system/ssh.socket.d/port.conf; systemctl daemon-reload")
        host.run("sh", "-ec", "systemctl -q disable --now ssh.service; systemctl -q enable --now ssh.socket")
    else:
        host.run("sh", "-ec", f"printf 'Port 22\\nPort {port}\\n' > /etc/ssh/sshd_config.d/ports.conf")
        host.run("systemctl", "restart", "ssh.service")
    host.wait_until_up()


def listens(host: Host, port: int) -> None:
    listen = f"import socket,time; s=socket.create_server(('',{port})); time.sleep(3600)"
    host.run("systemd-run", "--quiet", "--collect", f"--unit=listens-{port}", "python3", "-c", listen)
    pace.until(lambda: f":{port} " in host.run("ss", "-Hltn"), 60, "nobody listens")


def knock(host: Host, port: int, read: str = "") -> list[str]:
    return ["timeout", "3", "bash", "-c", f"exec 3<>/dev/tcp/{host.spec.installed_address}/{port} {read}"]


@contextmanager
def downloads(cluster: Cluster, host: Host) -> Iterator[Callable[[], int]]:
    """From a machine that is nobody's friend, as long as the block lasts; gives how much has come."""
    serve = "import socket,time\ns=socket.create_server(('',8000)).accept()[0]\nwhile 1: s.send(b'x'); time.sleep(.1)"
    inside = ["ip", "netns", "exec", cluster.lab.place.stranger]
    with subprocess.Popen([*inside, "python3", "-c", serve]) as server:
        pace.until(lambda: ":8000 " in run(*inside, "ss", "-Hltn"), 60, "nobody serves")
        fetch = f"exec cat </dev/tcp/{cluster.lab.profile.stranger}/8000 >/run/fetched"
        host.run("systemd-run", "--quiet", "--collect", "--unit=download", "bash", "-c", fetch)
        try:
            yield lambda: int(host.run("sh", "-c", "cat /run/fetched | wc -c"))
        finally:
            server.kill()
            host.outcome("systemctl", "stop", "download")


def test_nodes_are_let_in_and_strangers_only_to_ssh(person: Person) -> None:
    hosts = person.cluster
    head = hosts[HEAD]
    before = head.run("ufw", "show", "added")
    of_firewalld = ["firewall-cmd", "--list-all-policies"]
    policies = hosts[SOCKET].run(*of_firewalld)
    listens(head, 29500)
    listens(hosts[SOCKET], 29500)
    listens(hosts[FRIEND], 51413)
    with downloads(hosts, hosts[FRIEND]) as fetched:
        pace.until(lambda: fetched() > 0, 30, "nothing comes")
        said = person.bootstraps(phase="firewall")
        so_far = fetched()
        pace.until(lambda: fetched() > so_far + 5, 10, "the guard has cut off what was open before")
    assert "python3 on port 51413" in said.out
    assert head.outcome("nft", "list", "table", "inet", "motley").returncode != 0
    pace.until(lambda: hosts[FRIEND].outcome(*knock(head, 29500)).returncode == 0, 30, "a friend is not let in")
    assert hosts.stranger(*knock(head, 29500)).returncode != 0
    assert hosts[FRIEND].outcome(*knock(hosts[SOCKET], 29500)).returncode == 0
    assert hosts.stranger(*knock(hosts[SOCKET], 29500)).returncode != 0
    pace.until(
        lambda: hosts[SOCKET].outcome(*knock(hosts[FRIEND], 51413)).returncode == 0, 30, "a friend is not let in"
    )
    assert hosts.stranger(*knock(hosts[FRIEND], 51413)).returncode != 0
    greets = "&& read -r -t 2 greeting <&3 && [[ $greeting == SSH-* ]]"
    for name, port in SSH_PORTS.items():
        pace.until(lambda: hosts.stranger(*knock(hosts[name], port, greets)).returncode == 0, 30, name)  # noqa: B023
    assert set(person.bootstraps(phase="firewall").changed().values()) == {0}
    assert person.types("undo", phase="firewall").rc == 0
    assert head.run("ufw", "show", "added") == before
    assert hosts[SOCKET].run(*of_firewalld) == policies


def controller_has(cluster: Cluster, *addresses: str) -> None:
    """The first of them is what it shows."""
    desk, gateway = cluster.desk, cluster.lab.profile.gateway
    end_kept_connections(desk)
    run("ip", "-n", desk, "address", "flush", "dev", "eth0")
    for address in (*addresses, gateway):
        run("ip", "-n", desk, "address", "add", f"{address}/24", "dev", "eth0")


def end_kept_connections(desk: str) -> None:
    """They would still come from where they were opened."""
    for pid in run("ip", "netns", "pids", desk).split():
        with suppress(OSError):
            if b"[mux]" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGTERM)


@pytest.mark.long
def test_a_controller_is_known_by_what_the_nodes_see_of_it(person: Person, tmp_path: Path) -> None:
    hosts, old = person.cluster, person.cluster.lab.profile.controller
    (tmp_path / "files").mkdir()
    (tmp_path / "files/model").write_bytes(b"x" * 100_000)
    # Behind NAT: it takes itself for 10.77.0.10, and the nodes see another.
    controller_has(hosts, old, MOVED)
    nat = ["POSTROUTING", "-s", old, "-p", "tcp", "-j", "SNAT", "--to-source", MOVED]
    run("ip", "netns", "exec", hosts.desk, "iptables", "-t", "nat", "-A", *nat)
    try:
        person.bootstraps(phase="firewall")
        hand_on(hosts, tmp_path / "files").went_well()
        # Without it, it comes from an address that no node knows.
        run("ip", "netns", "exec", hosts.desk, "iptables", "-t", "nat", "-D", *nat)
        nat = []
        end_kept_connections(hosts.desk)
        started = pace.now()
        played = hand_on(hosts, tmp_path / "files")
        told = played.of_task("Hand files from node to node, each compared with its hash")
        assert played.rc != 0 and pace.now() - started < 60
        for name in (HEAD, FRIEND):
            assert f"does not let this controller in, which comes from {old}" in told[name]["msg"]
            assert "fix: ./motley bootstrap --phase firewall" in told[name]["msg"]
        person.bootstraps(phase="firewall")
        hand_on(hosts, tmp_path / "files").went_well()
    finally:
        if nat:
            run("ip", "netns", "exec", hosts.desk, "iptables", "-t", "nat", "-D", *nat)
        controller_has(hosts, old)
