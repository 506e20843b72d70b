"""Link speed and CPU share are what the profile says, measured over SSH and a real transfer."""

import re
import time

import pytest

from lab import cgroups, shaping
from lab import lab as labs
from lab.shell import run
from tests.support import pace
from tests.support.cluster import Cluster

pytestmark = pytest.mark.alone

RECEIVE = (
    "import socket, time; s = socket.create_server(('', 5201)); c, _ = s.accept(); n = 0; t = time.monotonic()\n"
    "while b := c.recv(1 << 20): n += len(b)\n"
    "print(n * 8 / 1e6 / (time.monotonic() - t))"
)
SEND = (
    "import socket, sys; s = socket.create_connection((sys.argv[1], 5201)); b = bytes(1 << 18)\n"
    "for _ in range(int(sys.argv[2])): s.sendall(b)\n"
)
BUSY = (
    "import os, time; t = time.monotonic()\nwhile time.monotonic() - t < 2: pass\n"
    "print(sum(os.times()[:2]) / (time.monotonic() - t))"
)


def transfer_mbit(cluster: Cluster, sender: str, receiver: str, megabytes: int) -> float:
    unit = f"receive-{time.monotonic_ns()}"
    host = cluster[receiver]
    start = ["systemd-run", "--quiet", f"--unit={unit}", "-p", "StandardOutput=file:/run/rate"]
    host.run("rm", "-f", "/run/rate")
    host.run(*start, "python3", "-c", RECEIVE)
    pace.until(lambda: ":5201 " in host.run("ss", "-Hltn"), 60, "the receiver did not start")
    cluster[sender].run("python3", "-c", SEND, host.spec.installed_address, str(megabytes * 4))
    pace.until(lambda: host.outcome("test", "-s", "/run/rate").returncode == 0, 60, "the receiver did not finish")
    return float(host.run("cat", "/run/rate"))


@pytest.fixture
def limited(trio: Cluster) -> Cluster:
    labs.limit(trio.lab, [], on=True)
    return trio


def test_a_gigabit_link_carries_a_gigabit(trio: Cluster) -> None:
    labs.limit(trio.lab, [], on=True)
    for host in trio.hosts:
        cgroups.quota(host.cgroup, None)
    assert 900 <= transfer_mbit(trio, "gpu-worker-1", "gpu-worker-2", 200) <= 1000


def test_a_slow_link_is_slow_in_both_directions_and_mended_to_what_it_was(limited: Cluster) -> None:
    with limited.suffers("gpu-worker-1", "slow-link", rate_mbit=20.0):
        assert 18 <= transfer_mbit(limited, "gpu-master", "gpu-worker-1", 5) <= 22
        assert 18 <= transfer_mbit(limited, "gpu-worker-1", "gpu-master", 5) <= 22
    assert shaping.rate_mbit(limited["gpu-worker-1"].cable) == 1000


def share_of_a_core(cluster: Cluster, host: str) -> float:
    """The most of three tries: a busy machine can give a host less than its quota, nothing can give it more."""
    return max(float(cluster.ssh(host, f'python3 -c "{BUSY}"').stdout) for _ in range(3))


@pytest.mark.long
def test_each_host_gets_its_share_of_a_core(limited: Cluster) -> None:
    for host in limited.hosts:
        assert share_of_a_core(limited, host.name) == pytest.approx(host.spec.cpu_percent / 100, rel=0.1)


@pytest.mark.long  # tests/unit/lab
def test_throttling_is_felt_and_lifted(limited: Cluster) -> None:
    with limited.suffers("gpu-master", "cpu-throttle", percent=10.0):
        assert share_of_a_core(limited, "gpu-master") == pytest.approx(0.1, rel=0.15)
    assert share_of_a_core(limited, "gpu-master") == pytest.approx(0.6, rel=0.1)


@pytest.mark.long  # test_a_slow_link_is_slow…
def test_limits_are_lifted_again(limited: Cluster) -> None:
    labs.limit(limited.lab, [], on=False)
    for host in limited.hosts:
        assert cgroups.quota_percent(host.cgroup) is None
        assert not re.search("tbf", run("tc", "-n", host.namespace, "qdisc", "show"))


def test_many_hosts_may_watch_files_at_once(trio: Cluster) -> None:
    """Their systemd does, and with the usual 128 of a machine the units of a fifth lab failed."""
    watch = "import ctypes; c = ctypes.CDLL(None); print(sum(c.inotify_init1(0) >= 0 for _ in range(500)))"
    assert int(trio["gpu-master"].run("python3", "-c", watch)) == 500
