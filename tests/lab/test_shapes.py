"""Each shape, booted: what a person who logs in would find. Three hosts show them all."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lab import lab as labs
from lab.profile import PASSWORD
from lab.shapes import desktop_2404, lived_in
from tests.support import cluster as clusters
from tests.support.cluster import Cluster

pytestmark = pytest.mark.long  # as what is bootstrapped on them, roles/test_shapes.py
SERVER, DESKTOP, OLD = "gpu-master", "gpu-worker-1", "gpu-worker-2"
SHAPES = (
    f"{SERVER}=server-2604",
    f"{DESKTOP}=desktop-2404,lived-in,encrypted,igpu-only",
    f"{OLD}=debian-root,debian-ifupdown",
)


@pytest.fixture(scope="module")
def shaped(lab_allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("shaped")
    with clusters.hosts(f"l{folder.stat().st_ino % 10**9}", "trio", None, shape=SHAPES) as lab:
        yield Cluster(lab, folder)


def test_they_boot_without_a_failed_unit_and_are_at_their_installers_address(shaped: Cluster) -> None:
    for host in shaped.hosts:
        state = host.outcome("systemctl", "is-system-running", "--wait").stdout.strip()
        assert state == "running", host.run("systemctl", "--failed", "--no-legend", check=False)
        assert shaped.ssh(host.name, "whoami").stdout.strip() == "user"
        routes = json.loads(host.run("ip", "-json", "-4", "route"))
        assert [route["gateway"] for route in routes if route["dst"] == "default"] == ["10.77.0.1"]


def test_a_server_has_the_new_sudo_and_the_new_python(shaped: Cluster) -> None:
    host = shaped[SERVER]
    assert host.run("sudo", "--version").startswith("sudo-rs 0.2.")
    assert host.run("python3", "--version") >= "Python 3.14"
    asked = shaped.ssh(SERVER, f"echo {PASSWORD} | sudo -S -p mine true; echo {PASSWORD} | sudo -S id -u")
    assert asked.stdout.strip() == "0" and "[sudo: mine] Password:" in asked.stderr
    assert host.run("sh", "-c", "ls /etc/netplan").split() == ["50-cloud-init.yaml"]


def test_a_desktop_has_networkmanager_and_its_owners_wifi(shaped: Cluster) -> None:
    host = shaped[DESKTOP]
    assert host.outcome("systemctl", "is-active", "systemd-networkd").stdout.strip() == "inactive"
    names = host.run("nmcli", "-t", "-f", "NAME", "connection").splitlines()
    assert set(desktop_2404.SAVED_WIFI) <= set(names)
    assert host.run("nmcli", "-g", "GENERAL.CONNECTION", "device", "show", host.spec.nics[0]) == "Wired connection 1\n"
    assert host.run("netplan", "get", "network.renderer").strip() == "NetworkManager"


def test_a_disk_looks_encrypted_and_graphics_are_switched_off(shaped: Cluster) -> None:
    host = shaped[DESKTOP]
    assert '"crypt"' in host.run("lsblk", "--json")
    assert host.run("cat", "/etc/crypttab").split()[-1] == "luks"
    assert host.run("prime-select", "query") == "intel\n"
    assert "NVIDIA" not in host.run("lspci")


def test_debians_installer_left_ifupdown_and_no_sudo(shaped: Cluster) -> None:
    host = shaped[OLD]
    for program in ("sudo", "netplan"):
        assert host.outcome("which", program).returncode == 1
    assert host.run("id", "-nG", "user").split() == ["user"]
    assert host.run("ifquery", "--state", host.spec.nics[0]).strip() == f"{host.spec.nics[0]}={host.spec.nics[0]}"


def test_a_machine_lived_in_has_all_of_it_also_after_a_restart(shaped: Cluster) -> None:
    host = shaped[DESKTOP]
    host.power_off()
    host.restore_power()
    host.wait_until_up()
    host.outcome("systemctl", "is-system-running", "--wait")
    own = {link["ifname"]: link["addr_info"] for link in json.loads(host.run("ip", "-json", "-4", "address"))}
    assert own["tailscale0"][0]["local"].startswith("100.101.")
    assert own["docker0"][0]["local"] == "172.17.0.1"
    assert own[f"{host.spec.nics[0]}.20"][0]["local"].startswith("192.168.20.")
    assert lived_in.ELSEWHERE in host.run("ip", "-4", "route")
    assert "DOCKER-USER" in host.run("nft", "list", "ruleset")
    assert "Status: active" in host.run("ufw", "status")
    assert "Datei oder Verzeichnis nicht gefunden" in shaped.ssh(DESKTOP, "ls /nowhere").stderr
    text = (host.disk.root / "etc/hosts").read_bytes()
    assert b"\r\n" in text and not text.endswith(b"\n") and b"oldname" in text


def test_they_stay_as_they_were_installed_after_a_reset(shaped: Cluster) -> None:
    labs.reset(shaped.lab, [SERVER])
    assert shaped[SERVER].run("sudo", "--version").startswith("sudo-rs")
    assert [shape.name for shape in labs.current(shaped.lab.place).host(SERVER).shapes] == ["server-2604"]
