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


def test_a_good_node_has_no_findings() -> None:
    assert judge(GOOD, 20) == []


def test_all_that_stands_in_the_way_is_named() -> None:
    bad = GOOD | {
        "os": {"ID": "fedora", "PRETTY_NAME": "Fedora 43"},
        "wsl": True,
        "python": [3, 8, 1],
        "free_gb": {"home": 3.0, "system": 0.1},
        "apt_lock": "apt-get (process 7)",
    }
    assert len(judge(bad, 20)) == 6


@pytest.mark.parametrize(
    ("odd", "what", "fix"),
    [
        ({"proxmox": True}, "runs Proxmox VE", "PCI Passthrough"),
        ({"wsl": True, "container": "wsl"}, "is Windows' WSL2", "boot Linux"),
        ({"container": "lxc"}, "is a container (lxc)", "the machine that it runs on"),
        ({"container": "docker"}, "is a container (docker)", "the machine that it runs on"),
    ],
)
def test_what_is_no_machine_of_its_own_is_refused_by_name(odd: dict[str, object], what: str, fix: str) -> None:
    (finding,) = judge(GOOD | odd, 0)
    assert what in finding["what"] and fix in finding["fix"]
    assert not judge(GOOD | {"container": "systemd-nspawn"}, 0)


@pytest.mark.parametrize(
    ("folder", "what", "fix"),
    [
        (
            {"open": False, "path": "/data", "at": "/data"},
            "work in /data (motley_home is /data)",
            "chown $(id -un): /data",
        ),
        ({"open": False, "path": "/root/c", "at": "/root"}, "work in /root (motley_home is /root/c)", "motley_home"),
        ({"filesystem": "nfs"}, "/home/anna/ai-cluster on nfs", "motley_home in hosts.yml"),
    ],
)
def test_a_folder_where_nobody_can_work_is_refused_before_anything_is_changed(
    folder: dict[str, Any], what: str, fix: str
) -> None:
    (found,) = judge(GOOD | {"cluster": GOOD["cluster"] | folder}, 20)
    assert what in found["what"] and fix in found["fix"]


def test_old_releases_are_refused_and_testing_is_not() -> None:
    assert judge(GOOD | {"os": {"ID": "ubuntu", "VERSION_ID": "20.04"}}, 0)
    assert not judge(GOOD | {"os": {"ID": "debian", "PRETTY_NAME": "Debian testing"}}, 0)


def test_a_python_without_locks_is_refused_old_or_new() -> None:
    assert not judge(GOOD | {"python": [3, 14, 7]}, 0)
    (newer,) = judge(GOOD | {"python": [3, 15, 0]}, 0)
    assert newer["what"] == "has Python 3.15.0" and "3.11 to 3.14" in newer["fix"] and "git pull" in newer["fix"]
