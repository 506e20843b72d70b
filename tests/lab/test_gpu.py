"""Simulated cards as programs in the hosts see them: the bus, drivers by real apt, a module that loads or does not.

The tests of a base share one trio and each puts back what it changed. Nothing here has met NVIDIA hardware.
"""

import pytest

from lab import faults
from lab.host import Host
from lab.shell import LabError
from tests.support.cluster import Cluster

RTX_50, LAPTOP, RTX_30 = "gpu-master", "gpu-worker-1", "gpu-worker-2"
QUIET = "env DEBIAN_FRONTEND=noninteractive apt-get -qq -y".split()


def install(host: Host, *packages: str) -> None:
    host.run(*QUIET, "update")
    host.run(*QUIET, "install", *packages)


def query(host: Host, fields: str) -> list[str]:
    return host.run("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits").strip().split(", ")


def reboot(cluster: Cluster, host: Host) -> None:
    faults.inject(cluster.lab, host, "reboot")


def kernel_log(host: Host) -> str:
    host.run("journalctl", "--sync")
    return host.run("journalctl", "--boot", "--dmesg", "--output=cat", "--no-pager")


def test_a_fresh_host_has_its_card_and_no_driver(trio_on_each_base: Cluster) -> None:
    laptop, old = trio_on_each_base[LAPTOP], trio_on_each_base[RTX_30]
    assert "01:00.0 0302: 10de:2820" in laptop.run("lspci", "-n")
    assert "01:00.0 0300: 10de:2482" in old.run("lspci", "-n")
    for host in (laptop, old):
        assert host.outcome("sh", "-c", "command -v nvidia-smi").returncode != 0
        assert host.outcome("modinfo", "nvidia").returncode != 0
        assert host.outcome("test", "-e", "/proc/driver/nvidia").returncode != 0
        assert host.run("mokutil", "--sb-state") == "SecureBoot disabled\n"
        assert host.run("systemctl", "--failed", "--quiet") == ""
    assert "linux-image-generic-hwe-24.04" in laptop.run("dpkg-query", "-W", "linux-image-*")
    assert "linux-image-generic-hwe-24.04" not in old.run("dpkg-query", "-W", "linux-image-*")


def test_a_laptop_is_known_by_its_case_battery_and_lid(trio_on_each_base: Cluster) -> None:
    laptop, desktop = trio_on_each_base[LAPTOP], trio_on_each_base[RTX_50]
    assert laptop.run("cat", "/sys/class/dmi/id/chassis_type") == "10\n"
    assert desktop.run("cat", "/sys/class/dmi/id/chassis_type") == "3\n"
    assert "BAT0" in laptop.run("ls", "/sys/class/power_supply")
    assert "BAT0" not in desktop.run("ls", "/sys/class/power_supply")
    with trio_on_each_base.suffers(LAPTOP, "on-battery"):
        assert laptop.run("cat", "/sys/class/power_supply/AC0/online", "/sys/class/power_supply/BAT0/status") == (
            "0\nDischarging\n"
        )
    assert laptop.run("cat", "/sys/class/power_supply/AC0/online") == "1\n"


def test_the_real_machines_network_is_still_where_netplan_looks(trio_on_each_base: Cluster) -> None:
    """Laying answers over /sys must not take anything else away."""
    host = trio_on_each_base[LAPTOP]
    assert set(host.spec.nics) <= set(host.run("ls", "/sys/class/net").split())
    assert host.run("cat", f"/sys/class/net/{host.spec.nics[0]}/address").strip() == host.cable.mac


def test_a_driver_is_installed_told_set_and_gone_again_whatever_happens_to_the_card(trio_on_each_base: Cluster) -> None:
    with trio_on_each_base.suffers(RTX_30, "driver-570") as host:
        assert query(host, "name,driver_version,memory.total") == ["NVIDIA GeForce RTX 3070 Ti", "570.195.03", "8192"]
        assert "570.195.03" in host.run("cat", "/proc/driver/nvidia/version")
        assert host.run("modinfo", "--field", "version", "nvidia") == "570.195.03\n"
        host.run("nvidia-smi", "-pl", "200")
        assert query(host, "power.limit") == ["200.00"]
        refused = host.outcome("runuser", "-u", "user", "--", "nvidia-smi", "-pm", "1")
        assert (refused.returncode, "Insufficient Permissions" in refused.stdout) == (4, True)

        what_can_happen_to_a_card_is_seen_at_once(trio_on_each_base)
        with trio_on_each_base.suffers(RTX_30, "processor-graphics"):
            assert host.run("prime-select", "query") == "intel\n"
            assert "10de" not in host.run("lspci", "-n")
            assert host.outcome("test", "-e", "/proc/driver/nvidia/version").returncode != 0
        assert "10de:2482" in host.run("lspci", "-n")

        host.run("apt-mark", "hold", "nvidia-driver-570")
        with trio_on_each_base.suffers(RTX_30, "driver-none"):
            assert host.outcome("sh", "-c", "command -v nvidia-smi").returncode != 0
            assert host.outcome("test", "-e", "/proc/driver/nvidia/version").returncode != 0
        assert query(host, "driver_version") == ["570.195.03"]
        assert host.run("apt-mark", "showhold") == "nvidia-driver-570\n"
    assert host.run("dpkg-query", "-W", "-f", "${Package} ", "*nvidia*", check=False).strip() == ""


def what_can_happen_to_a_card_is_seen_at_once(cluster: Cluster) -> None:
    with cluster.suffers(RTX_30, "gpu-busy") as host:
        usage, used = query(host, "utilization.gpu,memory.used")
        assert int(usage) > 90 and int(used) > 4000
    with cluster.suffers(RTX_30, "gpu-hot"):
        reasons, degrees = query(host, "clocks_throttle_reasons.active,temperature.gpu")
        assert int(reasons, 16) & 0x40 and int(degrees) > 90
    with cluster.suffers(RTX_30, "gpu-lost"):
        said = host.outcome("nvidia-smi")
        assert said.returncode == 15 and "GPU is lost" in said.stdout
        assert "Unknown header type" in host.run("lspci", "-v", "-s", "01:00.0")
        assert "Xid (PCI:0000:01:00): 79" in kernel_log(host)
        assert "Xid (PCI:0000:01:00): 79" in host.run("dmesg")
    with cluster.suffers(RTX_30, "driver-mismatch"):
        said = host.outcome("nvidia-smi")
        assert said.returncode == 18 and "Driver/library version mismatch" in said.stdout
    assert query(host, "utilization.gpu") == ["0"]


@pytest.mark.long  # roles/test_gpu_driver.py meets it
def test_an_upgrade_that_came_out_splits_library_and_module_unless_held(trio_on_each_base: Cluster) -> None:
    host = trio_on_each_base[RTX_30]
    install(host, "nvidia-driver-570", "linux-modules-nvidia-570-generic")
    reboot(trio_on_each_base, host)
    assert query(host, "driver_version") == ["570.195.03"]
    faults.inject(trio_on_each_base.lab, host, "newer-packages")
    host.run(*QUIET, "update")

    installed = host.run("dpkg-query", "-W", "-f", "${Package}\n", "*nvidia*", "linux-*generic*").split()
    host.run("apt-mark", "hold", *(name for name in installed if host_has(host, name)))
    assert "\nInst " not in host.run("apt-get", "-s", "full-upgrade")
    host.run("apt-mark", "unhold", *host.run("apt-mark", "showhold").split())
    planned = host.run("apt-get", "-s", "full-upgrade")
    assert "Inst libnvidia-compute-570" in planned and "Inst linux-image-6.8.0-90-generic" in planned

    host.run(*QUIET, "full-upgrade")
    host.run("test", "-e", "/run/reboot-required")
    assert "NVML library version: 570.211" in host.run("nvidia-smi", check=False)
    reboot(trio_on_each_base, host)
    assert query(host, "driver_version") == ["570.211.01"]
    assert "6.8.0-90-generic" in host.run("modinfo", "--field", "vermagic", "nvidia")


def host_has(host: Host, package: str) -> bool:
    return host.run("dpkg-query", "-W", "-f", "${db:Status-Abbrev}", package, check=False).startswith(("ii", "hi"))


@pytest.mark.long  # roles/test_gpu_driver.py meets it
def test_newer_cards_need_open_modules_and_secure_boot_signed_ones(trio_on_each_base: Cluster) -> None:
    host = trio_on_each_base[RTX_50]
    install(host, "nvidia-driver-580")  # nothing signed is asked for, so dkms comes along
    assert "nvidia/580.95.05" in host.run("dkms", "status")
    host.run("modprobe", "nvidia")
    assert "No devices were found" in host.run("nvidia-smi", check=False)
    assert "requires use of the NVIDIA open kernel modules" in kernel_log(host)

    install(host, "nvidia-driver-580-open", "nvidia-driver-580-")
    with trio_on_each_base.suffers(RTX_50, "secure-boot"):
        assert host.run("mokutil", "--sb-state") == "SecureBoot enabled\n"
        assert "couldn't communicate with the NVIDIA driver" in host.run("nvidia-smi", check=False)
        assert "Key was rejected by service" in host.outcome("modprobe", "nvidia").stderr
        install(host, "linux-modules-nvidia-580-open-generic-hwe-24.04", "nvidia-dkms-580-open-")
        reboot(trio_on_each_base, host)
        assert query(host, "driver_version,compute_cap") == ["580.95.05", "12.0"]


def test_faults_that_do_not_fit_a_host_say_so(trio_on_each_base: Cluster) -> None:
    lab, desktop = trio_on_each_base.lab, trio_on_each_base[RTX_50]
    with pytest.raises(LabError, match="is no laptop"):
        faults.inject(lab, desktop, "on-battery")
    with pytest.raises(LabError, match="has no driver loaded"):
        faults.inject(lab, trio_on_each_base[LAPTOP], "driver-mismatch")
    assert faults.injected(desktop) == []
