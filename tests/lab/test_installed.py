"""A host comes up as an installer leaves it, on every base: nothing is prepared that bootstrap is there to do."""

import re

from tests.support.cluster import Cluster

AS_A_PERSON = "whoami; sudo -n true || echo asked; echo lab-password | sudo -S -p '' id -u; ls ~/.ssh || echo no keys"


def test_a_person_logs_in_by_password_and_becomes_root_by_password(trio_on_each_base: Cluster) -> None:
    for host in trio_on_each_base.hosts:
        assert trio_on_each_base.ssh(host.name, AS_A_PERSON).stdout == "user\nasked\n0\nno keys\n"
        wrong = trio_on_each_base.ssh(host.name, "whoami", password="not it")
        assert wrong.returncode == 255 and "Permission denied" in wrong.stderr


def test_names_and_addresses_are_the_installers(trio_on_each_base: Cluster) -> None:
    for host in trio_on_each_base.hosts:
        assert host.run("hostname").strip() == "debian"
        assert re.search(r"^127\.0\.1\.1\s+debian$", host.run("cat", "/etc/hosts"), re.M)
        lan, spare = host.spec.nics
        assert f"{host.spec.installed_address}/24" in host.run("ip", "-brief", "address", "show", lan)
        assert "10.77." not in host.run("ip", "-brief", "address", "show", spare)
        assert lan in host.run("cat", "/etc/netplan/00-installer-config.yaml")


def test_identity_differs_from_host_to_host(trio_on_each_base: Cluster) -> None:
    for path in ("/etc/machine-id", "/etc/ssh/ssh_host_ed25519_key.pub", "/proc/sys/kernel/random/boot_id"):
        assert len({host.run("cat", path) for host in trio_on_each_base.hosts}) == 3


def test_it_boots_without_a_failed_unit(trio_on_each_base: Cluster) -> None:
    for host in trio_on_each_base.hosts:
        assert host.outcome("systemctl", "is-system-running", "--wait").stdout.strip() == "running", host.run(
            "systemctl", "--failed", "--no-legend", check=False
        )


def test_packages_come_from_the_labs_own_repository(trio_on_each_base: Cluster) -> None:
    host = trio_on_each_base.hosts[0]
    host.run("apt-get", "update")
    assert "10.77.0.1" in host.run("apt-cache", "policy", "ufw")
    host.run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "install", "python3-venv")
    host.run("python3", "-m", "venv", "/tmp/venv")


def test_netplan_applies(trio_on_each_base: Cluster) -> None:
    host = trio_on_each_base.hosts[0]
    host.run("netplan", "apply")
    host.wait_until_up()
