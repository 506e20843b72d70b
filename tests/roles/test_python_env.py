"""The environment of every node, on each base, by `./motley check-versions` and by its role: brought without internet,
drifted and fixed, and whatever happens to it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import faults
from lab.host import Host
from lab.profile import USER
from tests.support import pace, small_set
from tests.support.bootstrap import Person, Said, hint, python_of
from tests.support.cluster import REPOSITORY, Cluster, Played

HOME = f"/home/{USER}/ai-cluster"
PACKAGES = f"{HOME}/env/lib/python*/site-packages"
FOLDERS = "data/processed models/base models/checkpoints logs/runs results config scripts".split()
PLAYBOOK = """
- name: The environment alone
  hosts: cluster
  gather_facts: false
  tasks:
    - name: It
      ansible.builtin.import_role: { name: motley_python_env }
"""


class Owner:
    """Somebody with three machines and a set of small packages."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.person, self.cache = cluster, Person(cluster, folder), folder / "cache"
        self.requirements, self.python = small_set.make(folder / "requirements"), python_of(self.person)
        self.lock = small_set.fetch(self.requirements, self.python, self.cache)
        self.playbook = REPOSITORY / "playbooks" / f".test-env-{cluster.lab.place.name}.yml"
        self.playbook.write_text(PLAYBOOK)
        package = folder / "train"
        package.mkdir()
        (package / "__init__.py").write_text("ANSWER = 42\n")
        self.shared: dict[str, object] = {
            "motley_python_env_sets": ["small"],
            "motley_python_env_requirements": str(self.requirements),
            "motley_python_env_manage": True,
            "motley_workspace_package": str(package),
        }
        self.person.writes(**self.shared)

    def settings(self, **more: object) -> dict[str, object]:
        """Of the role in a play of its own."""
        return self.shared | {"motley_state_folder": str(self.person.state), **more}

    def plays(self, limit: str = "", **more: object) -> Played:
        chosen = {"limit": limit} if limit else {}
        cache = {"MOTLEY_CACHE": str(self.cache)}
        return self.cluster.play(self.playbook, extravars=self.settings(**more), envvars=cache, **chosen)

    def checks(self, *words: str) -> Said:
        return self.person.types("check-versions", *words, MOTLEY_CACHE=str(self.cache))

    def failures(self) -> list[tuple[str, str, str]]:
        said = self.checks("--json")
        data = json.loads(said.out)
        assert said.rc == (0 if data["ok"] else 1)
        return sorted((entry["node"], entry["key"], entry["fix"]) for entry in data["failures"])


@pytest.fixture(scope="module")
def owner(trio_on_each_base: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owner]:
    owner = Owner(trio_on_each_base, tmp_path_factory.mktemp("owner"))
    owner.person.bootstraps(phase="ssh_trust")
    yield owner
    owner.playbook.unlink()


def env(host: Host) -> str:
    return host.run("readlink", f"{HOME}/env").strip()


def test_where_nothing_is_installed_it_says_so_and_fix_brings_the_python_side_to_all(owner: Owner) -> None:
    said = owner.checks("--fix")
    assert "all nodes: there is no environment yet" in said.out, said.out
    assert said.rc == 0 and "all that must agree agrees on 3 nodes" in said.out, said.out
    for host in owner.cluster.hosts:
        owners = host.run("sh", "-c", f"cd {HOME}; stat -c %U {' '.join(FOLDERS)} env.{owner.lock}/bin/pip").split()
        assert owners == [USER] * (len(FOLDERS) + 1)
        asked = [f"{HOME}/env/bin/python", "-c", "import train, yaml, tqdm; print(train.ANSWER, yaml.__file__)"]
        assert host.run("env", f"PYTHONPATH={HOME}/code", *asked).startswith(f"42 {HOME}/env/lib/")
        assert env(host) == f"env.{owner.lock}"
        assert host.outcome("test", "-e", f"{HOME}/.wheels").returncode != 0


def test_a_second_run_is_one_task(owner: Owner) -> None:
    played = owner.plays()
    assert set(played.changed().values()) == {0}, played.stdout
    head = [r["task"] for r in played.results if r["host"] == "gpu-master" and r["event"] == "runner_on_ok"]
    assert [task for task in head if not task.startswith("Validating")] == ["Look at the environment it has"]


def test_the_driver_phases_choice_is_taken_and_not_mixed(owner: Owner) -> None:
    """The plan as gpu_driver leaves it, for a set of these small packages, and a run for one node."""
    (owner.requirements / "unsloth.txt").write_text((owner.requirements / "small.txt").read_text())
    plan = owner.person.state / "gpu_driver.json"
    plan.write_text(json.dumps({"branch": "580", "set": "small", "nodes": {"gpu-master": "580"}}))
    limited = owner.plays(limit="gpu-worker-1", motley_python_env_sets=[])
    plan.unlink()
    assert limited.rc != 0
    assert "gpu-master, gpu-worker-2 have small, now it would be small + unsloth" in limited.stdout


def test_a_changed_package_and_changed_files_are_found_and_mended(owner: Owner) -> None:
    """Of a changed file, its package alone is brought again."""
    one, other = (owner.cluster[name] for name in ("gpu-worker-1", "gpu-worker-2"))
    one.run("sh", "-c", f"cd {PACKAGES} && mv tqdm-*.dist-info tqdm-4.0.0.dist-info")
    one.run("sh", "-c", f"echo 'ANSWER = 41' > {HOME}/code/train/__init__.py")
    before = env(other)
    harm = "touch -r idna/core.py /tmp/when && sed -i s/idna/ibna/g idna/core.py && touch -r /tmp/when idna/core.py"
    other.run("sh", "-c", f"cd {PACKAGES} && {harm}")
    said = owner.checks("--fix")
    both = f"{one.name},{other.name}"
    environment = hint(f"bootstrap --phase python_env --nodes {both}")
    assert re.search(rf"✗ {both} is not as it was installed → {environment}", said.out), said.out
    train = hint(f"bootstrap --phase workspace --nodes {one.name}")
    assert re.search(rf"✗ {one.name} is \S+, the others \S+ → {train}", said.out), said.out
    assert said.rc == 0 and "all that must agree agrees on 3 nodes" in said.out, said.out
    assert "changed: tqdm" in said.out and "changed: idna (idna/core.py)" in said.out, said.out
    assert env(other) == before


@pytest.mark.long
def test_what_somebody_added_is_left_behind_and_make_goes_back_to_it_and_forward_again(owner: Owner) -> None:
    host = owner.cluster["gpu-worker-1"]
    host.run("sh", "-c", f"cd {PACKAGES} && touch mine.pth")
    before = env(host)
    assert owner.plays().changed() == {"gpu-master": 0, "gpu-worker-1": 2, "gpu-worker-2": 0}
    now = env(host)
    assert now != before and now.startswith(f"env.{owner.lock}")
    settings = [f"INVENTORY={owner.person.inventory}", "PHASE=python_env", "ROLLBACK=yes", f"LIMIT={host.name}"]
    environment = owner.person.environment() | {"MOTLEY_CACHE": str(owner.cache)}
    for expected in (before, now):
        pace.went_well(owner.cluster.controller("make", "bootstrap", *settings, env=environment))
        assert env(host) == expected
    refused = owner.plays(limit="gpu-master", motley_python_env_rollback=True)
    assert refused.rc != 0 and "no previous environment" in refused.stdout
    settings[1] = "PHASE=workspace"
    refused_at_once = owner.cluster.controller("make", "bootstrap", *settings)
    assert refused_at_once.returncode == 2 and "--phase python_env --rollback" in refused_at_once.stderr


@pytest.mark.long  # tests/unit/console/doctor
def test_a_library_newer_than_the_loaded_driver_is_found(owner: Owner) -> None:
    host = owner.cluster["gpu-worker-2"]
    loaded = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build"
    host.run("mount", "-t", "tmpfs", "simulated", "/proc/driver")
    host.run("sh", "-c", f"mkdir /proc/driver/nvidia && echo '{loaded}' > /proc/driver/nvidia/version")
    library, same = (f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.{version}" for version in ("95.05", "82.07"))
    host.run("touch", same)
    assert [entry for entry in owner.failures() if entry[1] == "driver_library"] == []
    host.run("mv", same, library)
    found = [entry for entry in owner.failures() if entry[1] == "driver_library"]
    assert found == [("gpu-worker-2", "driver_library", found[0][2])]
    assert found[0][2].startswith("sudo reboot on gpu-worker-2")
    host.run("umount", "/proc/driver")
    host.run("rm", library)


@pytest.mark.long
def test_a_folder_outside_the_home_is_made_for_the_login_user_and_taken_back(owner: Owner) -> None:
    """The folder that Motley's own messages propose; what nobody may enter is refused before anything is changed."""
    person, host = owner.person, owner.cluster["gpu-worker-2"]

    def at(home: str, word: str, phase: str) -> Said:
        person.writes(**owner.shared | {"motley_home": home})
        return person.types(word, limit=host.name, phase=phase, MOTLEY_CACHE=str(owner.cache))

    refused = at("/root/cluster", "bootstrap", "workspace")
    assert refused.rc == 1 and "does not let the login user work in /root" in refused.out, refused.out
    assert not host.run("sh", "-c", "ls -A /root | grep cluster || true")
    for phase in ("python_env", "workspace"):
        at("/srv/cluster", "bootstrap", phase).went_well()
    assert host.run("stat", "-c", "%U %a", "/srv/cluster").strip() == f"{USER} 755"
    assert host.run("sh", "-c", "ls /srv/cluster/env/bin/python /srv/cluster/code/train/__init__.py")
    assert at("/srv/cluster", "bootstrap", "workspace").changed() == {host.name: 0}
    assert [at("/srv/cluster", "undo", phase).rc for phase in ("workspace", "python_env")] == [0, 0]
    assert host.run("ls", "-A", "/srv").strip() == ""
    person.writes(**owner.shared)


def test_an_off_node_is_no_success(owner: Owner) -> None:
    owner.cluster["gpu-worker-1"].power_cut()
    said = owner.checks()
    assert said.rc == 1 and "gpu-worker-1 was not looked at: nobody answers" in said.out, said.out
    assert "nothing odd seen" in said.out, said.out


def test_killed_in_the_middle_it_is_done_by_the_next_run(owner: Owner) -> None:
    cluster, host = owner.cluster, owner.cluster["gpu-worker-2"]
    host.run("rm", "-rf", HOME)
    slow = f"/usr/lib/python{owner.python}/sitecustomize.py"  # the new environment takes its time to load
    host.run("mv", slow, f"{slow}.before")
    # uv's own question to it is isolated (-I)
    wait = "if sys.prefix != sys.base_prefix and not sys.flags.isolated: time.sleep(3600)"
    host.run("tee", slow, stdin=f"import sys, time\n{wait}\n")
    program = Path(sys.executable).parent / "ansible-playbook"
    settings = owner.settings(motley_python_env_imports=["tqdm"], ansible_python_interpreter="/usr/bin/python3")
    words = ["-i", str(cluster.inventory()), "-l", host.name, "-e", json.dumps(settings), str(owner.playbook)]
    environment = os.environ | {"MOTLEY_CACHE": str(owner.cache), "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg")}
    environment["PATH"] = f"{program.parent}:{environment['PATH']}"
    play = subprocess.Popen(
        ["ip", "netns", "exec", cluster.lab.place.controller, program, *words],
        cwd=REPOSITORY,
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    folder = f"{HOME}/env.{owner.lock}"
    half_made = lambda: host.outcome("test", "-e", f"{folder}/bin/tqdm").returncode == 0  # noqa: E731
    pace.until(half_made, pace.HANG_S, "nothing is unpacked", every_s=0.05)
    os.killpg(play.pid, signal.SIGKILL)
    play.wait()
    faults.inject(cluster.lab, host, "reboot")  # and the node with it
    assert half_made()
    assert host.outcome("test", "-e", f"{HOME}/env").returncode != 0
    assert host.outcome("test", "-e", f"{folder}/motley-env.json").returncode != 0
    host.run("mv", f"{slow}.before", slow)
    again = owner.plays(limit=host.name)
    assert again.rc == 0 and again.changed()[host.name] >= 1, again.stdout
    assert env(host) == f"env.{owner.lock}"
    assert host.run(f"{HOME}/env/bin/python", "-c", "import yaml; print('whole')").strip() == "whole"


def test_a_wheel_that_rotted_on_the_controller_is_fetched_again(owner: Owner) -> None:
    wheel = next((owner.cache / "wheels").glob("*/tqdm-*.whl"))
    good = wheel.read_bytes()
    wheel.write_bytes(good[:-100] + b"\0" * 100)
    small_set.fetch(owner.requirements, owner.python, owner.cache)
    assert wheel.read_bytes() == good
