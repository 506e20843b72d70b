"""What keeps a machine from becoming a node: all of it at once, each with its fix."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.module_utils.motley.preflight import judge

GOOD = {
    "os": {"ID": "ubuntu", "VERSION_ID": "24.04", "PRETTY_NAME": "Ubuntu 24.04"},
    "wsl": False,
    "proxmox": False,
    "container": "none",
    "python": [3, 12, 3],
    "free_gb": {"home": 100.0, "system": 100.0},
    "places": {"home": "/home/anna", "system": "/var"},
    "cluster": {"path": "/home/anna/ai-cluster", "at": "/home/anna", "open": True, "filesystem": "ext2/ext3"},
    "apt_lock": "",
    "apt_waited_s": 0.0,
}
OLD = {"ID": "ubuntu", "VERSION_ID": "20.04", "PRETTY_NAME": "Ubuntu 20.04"}


@pytest.mark.parametrize(
    "also",
    [
        {},
        {"container": "systemd-nspawn"},
        {"os": {"ID": "debian", "PRETTY_NAME": "Debian testing"}},
        {"python": [3, 14, 7]},
    ],
)
def test_a_good_node_has_no_findings(also: dict[str, Any]) -> None:
    assert judge(GOOD | also, 20) == []


def test_all_that_stands_in_the_way_is_named() -> None:
    bad = GOOD | {
        "os": {"ID": "fedora", "PRETTY_NAME": "Fedora 43"},
        "wsl": True,
        "python": [3, 8, 1],
        "free_gb": {"home": 3.0, "system": 0.1},
        "apt_lock": "apt-get (process 7)",
    }
    assert len(judge(bad, 20)) == 6


def folder(path: str, at: str, *, is_open: bool = True, filesystem: str = "ext2/ext3") -> dict[str, Any]:
    return {"cluster": {"path": path, "at": at, "open": is_open, "filesystem": filesystem}}


@pytest.mark.parametrize(
    ("odd", "what", "fix"),
    [
        ({"proxmox": True}, "runs Proxmox VE", "PCI Passthrough"),
        ({"wsl": True, "container": "wsl"}, "is Windows' WSL2", "boot Linux"),
        ({"container": "lxc"}, "is a container (lxc)", "the machine that it runs on"),
        ({"container": "docker"}, "is a container (docker)", "the machine that it runs on"),
        (folder("/data", "/data", is_open=False), "in /data (motley_home is /data)", "chown $(id -un): /data"),
        (folder("/root/c", "/root", is_open=False), "work in /root (motley_home is /root/c)", "motley_home"),
        (folder("/home/a/c", "/home/a", filesystem="nfs"), "/home/a/c on nfs", "motley_home in hosts.yml"),
        ({"os": {"ID": "fedora", "PRETTY_NAME": "Fedora 43"}}, "runs Fedora 43", "install Ubuntu 24.04 or newer"),
        ({"free_gb": {"home": 9.0, "system": 9.0}}, "9.0 GB free for /home/anna, 20 GB are needed", "make room: du"),
        ({"apt_lock": "apt-get (process 7)"}, "apt is busy since 0 s: apt-get (process 7)", "let it finish"),
        ({"os": OLD}, "runs Ubuntu 20.04, too old", "upgrade it to Ubuntu 24.04 or newer"),
        ({"python": [3, 15, 0]}, "has Python 3.15.0", "3.11 to 3.14: a newer Motley may know it (git pull)"),
    ],
)
def test_what_is_refused_is_named_with_its_fix(odd: dict[str, Any], what: str, fix: str) -> None:
    [found] = judge(GOOD | odd, 20)
    assert what in found["what"] and fix in found["fix"]
