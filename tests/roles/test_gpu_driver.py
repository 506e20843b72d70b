"""The driver role on lab hosts with simulated cards: what it plans, installs, holds, restarts, and takes back."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pexpect
import pytest

from lab import deb, faults, gpu
from lab import lab as labs
from lab.host import Host
from lab.profile import USER
from tests.support import pace
from tests.support.bootstrap import Person
from tests.support.cluster import Cluster, Played

NODES = ("gpu-master", "gpu-worker-1", "gpu-worker-2")
OLD = "gpu-worker-2"
INSTALL = "Install the driver (waits while another program uses apt) and hold it with its kernel"
PROOF = "Prove that driver, module and library agree, that every card answers and that a kernel can be built"
PLAY = """
- name: One role alone
  hosts: cluster
  gather_facts: false
  tasks:
    - name: This role
      ansible.builtin.import_role: {{ name: {role}, tasks_from: {tasks} }}
"""
# Packages with version and hold, which were asked for by a person, and every setting of apt and of modules.
LOOK = r"""
dpkg-query -W -f '${db:Status-Abbrev} ${binary:Package} ${Version}\n'; echo; apt-mark showauto
find /etc/apt /etc/modprobe.d /etc/modules-load.d -type f -exec sha256sum {} + | sort -k2
cat /proc/driver/nvidia/version
"""
DRIVER_OR_KERNEL = ("nvidia", "linux-image", "linux-headers", "linux-generic", "cuda")


class Owner:
    """Somebody who runs the role from the controller and looks at the machines."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder

    def plays(
        self,
        tasks: str = "main",
        *,
        check: bool = False,
        limit: str = "",
        env: dict[str, str] | None = None,
        role: str = "motley_gpu_driver",
        **extra: Any,
    ) -> Played:
        """Without the compiler, which takes seconds to install: one test here, and test_bootstrap.py, are about it."""
        playbook = self.folder / f"{role}-{tasks}.yml"
        playbook.write_text(PLAY.format(role=role, tasks=tasks))
        settings = {"cmdline": "--check --diff"} if check else {}
        looked: dict[str, object] = {"motley_preflight_look": {}}  # the machines are where the lab's inventory has them
        return self.cluster.play(
            playbook,
            extravars={"motley_state_folder": str(self.folder), "motley_gpu_driver_compiler": False, **looked, **extra},
            limit=limit or None,
            envvars={"ANSIBLE_ROLES_PATH": str(Path(__file__).parents[2] / "roles"), **(env or {})},
            **settings,
        )

    def record(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "gpu_driver.json").read_text()))

    def looks(self, *names: str) -> dict[str, str]:
        return {name: self.cluster[name].run("sh", "-c", LOOK, check=False) for name in names or NODES}


def say(played: Played, host: str) -> str:
    return str(played.of_task(INSTALL)[host]["motley_say"])


def failure(played: Played, host: str) -> str:
    failed = [r for r in played.results if r["host"] == host and r["event"] == "runner_on_failed"]
    return str(failed[-1]["result"]["msg"])


def upgrade_would_change(host: Host) -> list[str]:
    """What a full upgrade, simulated, would do to driver and kernel."""
    said = host.run("apt-get", "-s", "full-upgrade")
    lines = [line for line in said.splitlines() if line.startswith(("Inst ", "Remv "))]
    return [line for line in lines if line.split()[1].startswith(DRIVER_OR_KERNEL) or "nvidia" in line]


def boot(host: Host) -> str:
    return host.run("cat", "/proc/sys/kernel/random/boot_id")


@pytest.fixture
def owner(trio: Cluster, tmp_path: Path) -> Owner:
    return Owner(trio, tmp_path)


@pytest.fixture
def fresh(owner: Owner) -> Owner:
    labs.reset(owner.cluster.lab, [])
    return owner


@pytest.fixture
def old_alone(owner: Owner) -> Owner:
    """The machine with the RTX 3070 Ti, as an installer leaves it."""
    labs.reset(owner.cluster.lab, [OLD])
    return owner


def test_three_different_machines_get_one_driver_and_give_it_back(fresh: Owner) -> None:
    """The whole life: an old 570 among two empty machines; check, install, restart with consent, hold, undo."""
    cluster, old = fresh.cluster, fresh.cluster[OLD]
    faults.inject(cluster.lab, old, "driver-570")
    before = fresh.looks()

    checked = fresh.plays(check=True).went_well()
    assert "580-open on all nodes (RTX 50 (Blackwell) needs the open modules" in say(checked, "gpu-master")
    difference = checked.of_task(INSTALL)[OLD]["diff"]
    assert "nvidia-driver-570" in difference["before"]
    assert "libnvidia-compute-580 580.95.05" in difference["after"]
    assert fresh.looks() == before

    boots = {host.name: boot(host) for host in cluster.hosts}
    first = fresh.plays()
    assert "it runs module 570.195.03, 580.95.05 is installed" in failure(first, OLD)
    assert "--reboot yes" in failure(first, OLD)
    assert set(first.of_task(PROOF)) == {"gpu-master", "gpu-worker-1"}
    assert {host.name: boot(host) for host in cluster.hosts} == boots, "nobody had allowed a restart"
    assert fresh.record()["set"] == "node-gpu"

    own = fresh.plays(limit=OLD, reboot="yes", __motley_gpu_driver_boot=boots[OLD].strip())
    assert "this is the machine you are working on" in failure(own, OLD), "as if the controller ran on that node"
    assert boot(old) == boots[OLD]

    fresh.plays(env={"REBOOT": "yes"}).went_well()  # as make hands it on
    again = {host.name: boot(host) for host in cluster.hosts}
    assert [name for name in NODES if again[name] != boots[name]] == [OLD]
    for host in cluster.hosts:
        module = host.run("cat", "/proc/driver/nvidia/version")
        assert "Open Kernel Module" in module and "580.95.05" in module
        assert host.run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") == "580.95.05\n"
        installed = host.run("dpkg-query", "-W", "-f", "${Package}\n").split()
        assert "dkms" not in installed, "signed modules, none built"
        assert ("libnvidia-gl-580" in installed) is (host.name == OLD), "what draws a desktop, where something drew one"

    for host in cluster.hosts:
        faults.inject(cluster.lab, host, "newer-packages")
        host.run("apt-get", "-qq", "update")
        assert upgrade_would_change(host) == []
    upgraded = cluster["gpu-master"]
    upgraded.run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y", "full-upgrade")
    second = fresh.plays(reboot="yes")
    assert second.changed() == dict.fromkeys(NODES, 0), second.stdout  # a real upgrade moved nothing either
    for host in cluster.hosts:
        faults.fix(cluster.lab, host, "newer-packages")
        host.run("apt-get", "-qq", "update")

    fresh.plays("undo").went_well()
    assert fresh.looks() == before


@pytest.mark.long  # tests/unit/console
def test_somebody_at_the_terminal_is_asked_and_nothing_restarts_without_a_yes(old_alone: Owner, tmp_path: Path) -> None:
    host, person = old_alone.cluster[OLD], Person(old_alone.cluster, tmp_path)
    person.writes(motley_gpu_driver_manage=True, motley_gpu_driver_branch="580", motley_gpu_driver_compiler=False)
    faults.inject(old_alone.cluster.lab, host, "driver-570")
    started = boot(host)

    terminal = person.sits_at("bootstrap", limit=OLD, phase="gpu_driver")
    terminal.expect_exact(f"restart {OLD} now? [y/N] ")
    terminal.sendline("")
    terminal.expect(pexpect.EOF)
    assert terminal.wait() == 1
    assert boot(host) == started

    said = person.types("bootstrap", limit=OLD, phase="gpu_driver")
    assert said.rc == 1 and "--reboot yes" in said.out and "restart gpu" not in said.out, "nobody is there to be asked"
    assert boot(host) == started

    terminal = person.sits_at("bootstrap", limit=OLD, phase="gpu_driver")
    terminal.expect_exact(f"restart {OLD} now? [y/N] ")
    terminal.sendline("y")
    terminal.expect("✓ bootstrap · 1 of 1 nodes")
    terminal.expect(pexpect.EOF)
    assert terminal.wait() == 0
    assert boot(host) != started
    assert host.run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") == "580.95.05\n"


@pytest.mark.long  # tests/unit/plugins/filter/test_choose_driver_and_torch.py
def test_a_working_570_stays_and_its_holds_can_be_lifted(old_alone: Owner) -> None:
    host = old_alone.cluster[OLD]
    faults.inject(old_alone.cluster.lab, host, "driver-570")
    played = old_alone.plays(limit=OLD).went_well()
    assert "keeps 570.195.03" in say(played, OLD)
    assert "570.195.03 is there and works" in say(played, OLD)
    assert old_alone.record()["set"] == "node-gpu-r570"

    faults.inject(old_alone.cluster.lab, host, "newer-packages")
    host.run("apt-get", "-qq", "update")
    assert upgrade_would_change(host) == []
    old_alone.plays(limit=OLD, motley_gpu_driver_hold=False)
    assert any("linux-image-6.8.0-90" in line for line in upgrade_would_change(host)), "it was our hold that held"

    host.run("sh", "-c", "dpkg --unpack /var/cache/apt/archives/nvidia-utils-570_*.deb")  # as a power cut leaves it
    assert "nvidia-utils-570" in host.run("dpkg", "--audit")
    old_alone.plays(limit=OLD).went_well()
    assert host.run("dpkg", "--audit") == ""
    assert upgrade_would_change(host) == []


@pytest.mark.long  # tests/unit/plugins/module_utils/motley
def test_a_kernel_that_would_come_along_is_not_let_in(old_alone: Owner) -> None:
    """Newer kernels are on offer: the modules that follow them would bring one; those for this kernel are too old."""
    host = old_alone.cluster[OLD]
    faults.inject(old_alone.cluster.lab, host, "newer-packages")
    kernels = host.run("ls", "/boot")
    played = old_alone.plays(limit=OLD).went_well()
    assert "modules built here; kernel unmoved (6.8.0-88-generic)" in say(played, OLD)
    assert host.run("ls", "/boot") == kernels


@pytest.mark.long  # test_when_it_breaks.py waits for apt, too
def test_it_waits_for_another_program_that_uses_apt(owner: Owner) -> None:
    host = owner.cluster[OLD]
    lock = "f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, fcntl.LOCK_EX)"
    busy = f"import fcntl, time; {lock}; time.sleep({pace.seconds(12)})"
    host.run("systemd-run", "--quiet", "--unit=busy-with-apt", "python3", "-c", busy)
    started = time.monotonic()
    played = owner.plays(limit=OLD).went_well()
    assert time.monotonic() - started > 8
    told = re.search(r"waited (\d+) s for python3 \(process \d+\).*, which used apt", say(played, OLD))
    assert told and int(told[1]) >= 3, say(played, OLD)


@pytest.mark.long  # tests/unit/plugins/module_utils/motley
def test_secure_boot_takes_signed_modules_and_tells_what_its_screen_would_ask(old_alone: Owner) -> None:
    host = old_alone.cluster[OLD]
    faults.inject(old_alone.cluster.lab, host, "secure-boot")
    refuse_signed = "Package: linux-modules-nvidia-*\nPin: release *\nPin-Priority: -1\n"
    host.run("tee", "/etc/apt/preferences.d/no-signed", stdin=refuse_signed)
    before = old_alone.looks(OLD)
    refused = old_alone.plays(limit=OLD)
    assert "Secure Boot would ask for their key on the machine's own screen" in failure(refused, OLD)
    assert old_alone.looks(OLD) == before, "nothing was installed before it was said"

    started = boot(host)
    told = old_alone.plays(limit=OLD, motley_gpu_driver_own_key=True, reboot="yes")
    assert "Enroll MOK, Continue, Yes, the password, Reboot" in failure(told, OLD)
    assert boot(host) == started, "what the screen will ask is said before any restart"
    assert old_alone.plays("undo", limit=OLD).rc == 0
    assert old_alone.looks(OLD) == before

    host.run("rm", "/etc/apt/preferences.d/no-signed")
    signed = old_alone.plays(limit=OLD).went_well()
    assert "signed modules that follow the kernel" in say(signed, OLD)


@pytest.mark.long
def test_a_desktop_keeps_its_picture_and_its_owner_hears_of_the_passphrase(old_alone: Owner) -> None:
    """What draws is what is installed, display manager or not; the way with modules for this kernel alone as well."""
    host = old_alone.cluster[OLD]
    faults.inject(old_alone.cluster.lab, host, "driver-570")
    faults.inject(old_alone.cluster.lab, host, "encrypted-disk")
    not_following = "Package: linux-modules-nvidia-580*-generic\nPin: release *\nPin-Priority: -1\n"
    exact = "Package: linux-modules-nvidia-580*-[0-9]*-generic\nPin: release *\nPin-Priority: 500\n"
    host.run("tee", "/etc/apt/preferences.d/for-this-kernel", stdin=f"{exact}\n{not_following}")
    before = old_alone.looks(OLD)
    waits = "the start waits at its passphrase"
    checked = old_alone.plays(limit=OLD, check=True, motley_gpu_driver_branch="580")
    assert checked.rc == 0 and waits in say(checked, OLD), checked.stdout

    played = old_alone.plays(limit=OLD, motley_gpu_driver_branch="580")
    assert "it runs module 570.195.03" in failure(played, OLD) and waits in failure(played, OLD)
    installed = host.run("dpkg-query", "-W", "-f", "${Package}\n").split()
    for part in ("libnvidia-gl", "libnvidia-encode", "xserver-xorg-video-nvidia"):
        assert f"{part}-580" in installed and f"{part}-570" not in installed
    assert "linux-modules-nvidia-580-open-6.8.0-88-generic" in installed
    assert old_alone.plays("undo", limit=OLD).rc == 0
    assert old_alone.looks(OLD) == before

    late = old_alone.plays(limit=OLD, motley_gpu_driver_branch="580", reboot="yes", motley_gpu_driver_reboot_wait_s=1)
    assert late.rc != 0 and waits in failure(late, OLD) and "type its passphrase; when it answers" in failure(late, OLD)


@pytest.mark.long
def test_a_driver_that_runs_under_secure_boot_is_kept_whoever_signed_it(old_alone: Owner) -> None:
    host = old_alone.cluster[OLD]
    faults.inject(old_alone.cluster.lab, host, "own-key")
    faults.inject(old_alone.cluster.lab, host, "secure-boot")
    host.run("apt-get", "-qq", "update")
    image = "linux-headers-6.8.0-88-generic"
    host.run(*"apt-get -qq -y install nvidia-headless-580 nvidia-dkms-580 nvidia-utils-580".split(), image)
    host.run("modprobe", "nvidia")
    host.run("rm", "-r", "/var/lib/shim-signed")  # its owner keeps the key elsewhere
    played = old_alone.plays(limit=OLD).went_well()
    assert "keeps 580.95.05" in say(played, OLD)


def test_what_cannot_work_is_refused_before_anything_changes(owner: Owner) -> None:
    """One machine's card is too old for any torch, another machine has none."""
    lab = owner.cluster.lab
    labs.reset(lab, ["gpu-worker-1", OLD])
    laptop, empty = owner.cluster["gpu-worker-1"], owner.cluster[OLD]
    (laptop.hardware / "pci" / gpu.BUS / "device").write_text("0x1b80\n")
    (empty.hardware / "pci" / gpu.BUS / "vendor").write_text("0x1002\n")
    before = owner.looks("gpu-worker-1", OLD)
    played = owner.plays(limit=f"gpu-worker-1,{OLD}")
    assert played.rc != 0
    said = failure(played, "gpu-worker-1")
    assert "gpu-worker-1: its GTX 10 (Pascal) card (10de:1b80) has compute 6.1" in said
    assert "\nfix: " in said
    assert owner.looks("gpu-worker-1", OLD) == before

    alone = owner.plays(limit=OLD, motley_gpu="none")
    assert alone.rc == 0
    look = alone.of_task("Look at graphics card, driver and kernel")[OLD]
    assert look["motley_say"] == "no NVIDIA card on its bus: nothing to do"
    assert owner.looks(OLD)[OLD] == before[OLD]


@pytest.mark.long  # test_bootstrap.py has the compiler
def test_what_kernels_are_built_with_comes_and_goes_but_for_what_others_need(old_alone: Owner) -> None:
    host, with_compiler = old_alone.cluster[OLD], {"limit": OLD, "motley_gpu_driver_compiler": True}
    before = old_alone.looks(OLD)
    checked = old_alone.plays(check=True, **with_compiler)
    python = host.run("python3", "-c", "import sys; print('libpython%d.%d-dev' % sys.version_info[:2])").strip()
    assert f"gcc libc6-dev {python} for GPU kernels" in say(checked, OLD)
    assert "\ngcc 4:" in checked.of_task(INSTALL)[OLD]["diff"]["after"]
    assert old_alone.looks(OLD) == before

    played = old_alone.plays(**with_compiler)
    assert played.rc == 0 and set(played.of_task(PROOF)) == {OLD}, played.stdout
    header = f"/usr/include/{python.removeprefix('lib').removesuffix('-dev')}/Python.h"
    host.run("rm", header)
    lost = old_alone.plays(**with_compiler)
    assert f"there is no {header}, so no GPU kernel can be built\nfix: ./motley bootstrap --phase gpu" in failure(
        lost, OLD
    )
    assert lost.of_task(INSTALL)[OLD]["changed"] is False and "for GPU kernels" not in say(lost, OLD)

    needs_it = deb.Deb(name="needs-gcc", version="1", summary="built at home", depends=("gcc",))
    host.run("dpkg", "--install", f"/root/{deb.build(needs_it, host.disk.root / 'root').name}")
    undone = old_alone.plays("undo", limit=OLD).went_well()
    told = undone.of_task("Put back its driver, its kernel's freedom and its holds")[OLD]["motley_say"]
    assert re.search(r"^gcc and \d+ more stay, needed by needs-gcc; \d+ packages go", told), told
    left = host.run("dpkg-query", "-W", "-f", "${Package}\n").split()
    assert {"gcc", "needs-gcc"} <= {*left} and python not in left and "nvidia-utils-580" not in left
    assert "gcc" in host.run("apt-mark", "showauto").split(), "it goes with what needs it"


SELFTEST = """#!/bin/sh
pwd > ../asked; echo "$@" >> ../asked
echo "Gtk-WARNING: no word of selftest's"
printf '%s\\n' '{"ok": false, "failures": ["GPU kernel: there is no Python.h\\nfix: bring it"]}'
exit 1
"""


def test_the_proof_asks_each_gpu_of_a_node_whose_torch_is_for_gpus(old_alone: Owner) -> None:
    """The lab's cards compute nothing: in place of the environment stands what answers as its Python would."""
    host, home = old_alone.cluster[OLD], f"/home/{USER}/ai-cluster"
    faults.inject(old_alone.cluster.lab, host, "driver-570")
    site = f"{home}/env/lib/python3.11/site-packages/torch"
    host.run("mkdir", "-p", site, f"{home}/env/bin", f"{home}/code")
    host.run("tee", f"{site}/version.py", stdin="cuda: Optional[str] = '13.0'\n")
    host.run("tee", f"{home}/env/bin/python", stdin=SELFTEST)
    host.run("chmod", "755", f"{home}/env/bin/python")
    host.run("chown", "-R", USER, home)
    played = old_alone.plays(role="motley_proof", limit=OLD, motley_home=home)
    assert failure(played, OLD) == "GPU kernel: there is no Python.h\nfix: bring it", played.stdout
    assert host.run("cat", f"{home}/asked").split() == f"{home}/code -m train selftest --device cuda --json".split()
