"""The environment of every node, on each base: from wheels, without internet, and whatever happens to it."""

import json
import os
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
from tests.support.cluster import REPOSITORY, Cluster, Played

HOME = f"/home/{USER}/ai-cluster"
PLAYBOOK = """
- name: The environment alone
  hosts: cluster
  gather_facts: false
  tasks:
    - name: It
      ansible.builtin.import_role: { name: motley_python_env, tasks_from: "{{ part | default('main') }}" }
"""


class Setup:
    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.cache = cluster, folder / "cache"
        self.requirements = small_set.make(folder / "requirements")
        python = cluster.hosts[0].run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
        self.python, self.lock = python, small_set.fetch(self.requirements, python, self.cache)
        self.playbook = REPOSITORY / "playbooks" / f".test-env-{cluster.lab.place.name}.yml"
        self.playbook.write_text(PLAYBOOK)

    def settings(self, **more: object) -> dict[str, object]:
        return {
            "motley_state_folder": str(self.cluster.folder),
            "motley_python_env_sets": ["small"],
            "motley_python_env_requirements": str(self.requirements),
            **more,
        }

    def run(self, cmdline: str = "", limit: str = "", **more: object) -> Played:
        envvars = {"MOTLEY_CACHE": str(self.cache)}
        extra = {"cmdline": cmdline} if cmdline else {}
        extra |= {"limit": limit} if limit else {}
        return self.cluster.play(self.playbook, extravars=self.settings(**more), envvars=envvars, **extra)

    def ok(self, **more: object) -> Played:
        played = self.run(**more)
        assert played.rc == 0, played.stdout
        return played

    def wheel(self, start: str) -> Path:
        return next((self.cache / "wheels").glob(f"*/{start}-*.whl"))


@pytest.fixture(scope="module")
def setup(trio_on_each_base: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    made = Setup(trio_on_each_base, tmp_path_factory.mktemp("setup"))
    yield made
    made.playbook.unlink()


@pytest.fixture(scope="module")
def built(setup: Setup) -> Setup:
    before = [host.run("find", f"/home/{USER}", "-printf", "%p %u\n") for host in setup.cluster.hosts]
    checked = setup.ok(cmdline="--check --diff")
    assert set(checked.changed().values()) == {1}
    cleaned = [
        host.run("find", f"/home/{USER}", "-not", "-path", "*/.ansible*", "-printf", "%p %u\n")
        for host in setup.cluster.hosts
    ]
    assert [set(lines.split("\n")) for lines in cleaned] <= [
        set(lines.split("\n")) for lines in before
    ] or cleaned == before
    start = pace.now()
    played = setup.ok()
    print(f"three environments in {pace.now() - start:.1f} s")
    assert all(count >= 2 for count in played.changed().values())
    return setup


def env(host: Host) -> str:
    return host.run("readlink", f"{HOME}/env").strip()


def test_every_node_has_it_and_no_internet_was_needed(built: Setup) -> None:
    for host in built.cluster.hosts:
        assert env(host) == f"env.{built.lock}"
        asked = ["runuser", "-u", USER, "--", f"{HOME}/env/bin/python", "-c", "import yaml, tqdm; print(yaml.__file__)"]
        assert host.run(*asked).startswith(f"{HOME}/env/lib/")
        assert host.run("stat", "-c", "%U", f"{HOME}/env.{built.lock}/bin/pip").strip() == USER
        assert host.outcome("test", "-e", f"{HOME}/.wheels").returncode != 0
    same = {
        host.run("sh", "-c", f"cd {HOME}/env/lib && find . -name RECORD | sort | xargs cat | sha256sum")
        for host in built.cluster.hosts
    }
    assert len({line for line in same}) <= len(built.cluster.hosts)


def test_a_second_run_is_one_task(built: Setup) -> None:
    played = built.ok()
    assert set(played.changed().values()) == {0}
    head = [r["task"] for r in played.results if r["host"] == "gpu-master" and r["event"] == "runner_on_ok"]
    assert [task for task in head if not task.startswith("Validating")] == ["Look at the environment it has"]


def test_the_driver_phases_choice_is_taken_and_not_mixed(built: Setup) -> None:
    """The plan as gpu_driver leaves it, for a set of these small packages."""
    locked = (built.requirements / "small.txt").read_text()
    (built.requirements / "unsloth.txt").write_text(locked)
    plan = built.cluster.folder / "gpu_driver.json"
    plan.write_text(json.dumps({"branch": "580", "set": "small", "nodes": {"gpu-master": "580"}}))
    ask = [sys.executable, str(built.requirements / "wheelhouse.py"), "--id", built.python, "small", "unsloth"]
    other = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    told = built.ok(cmdline="--check", motley_python_env_sets=[]).of_task(
        "Build the environment beside the present one, and switch to it"
    )
    assert {result["motley_say"] for result in told.values()} == {f"would build env.{other}"}
    assert len(told) == 3, "also the nodes that the plan does not name: they have no card"

    limited = built.run(limit="gpu-worker-1", motley_python_env_sets=[])
    assert limited.rc != 0
    assert "gpu-master, gpu-worker-2 have small, now it would be small + unsloth" in limited.stdout
    plan.unlink()
    assert set(built.ok(limit="gpu-worker-1", motley_python_env_sets=[]).changed().values()) == {0}, (
        "what the others have"
    )


@pytest.mark.long  # test_check_versions.py has it by its verb
def test_a_package_that_somebody_changed_is_brought_again_alone(built: Setup) -> None:
    host = built.cluster["gpu-worker-1"]
    host.run("sh", "-c", f"rm -r {HOME}/env/lib/python*/site-packages/tqdm*")
    told = built.ok(cmdline="--check").of_task("Build the environment beside the present one, and switch to it")
    assert told["gpu-worker-1"]["motley_say"] == "would install tqdm again"
    played = built.ok()
    assert played.changed() == {"gpu-master": 0, "gpu-worker-1": 2, "gpu-worker-2": 0}
    handed = played.of_task("Hand files from node to node, each compared with its hash")["gpu-worker-1"]
    assert handed["received"] == sum(built.wheel(name).stat().st_size for name in ("tqdm", "uv"))
    assert env(host) == f"env.{built.lock}"
    assert host.run(f"{HOME}/env/bin/python", "-c", "import tqdm; print('here')").strip() == "here"
    assert set(built.ok().changed().values()) == {0}


@pytest.fixture(scope="module")
def added(built: Setup) -> dict[str, int]:
    """What a run changes after somebody has put a file into one environment."""
    mine = f"{HOME}/env.{built.lock}/lib/python{built.python}/site-packages/mine.pth"
    built.cluster["gpu-worker-1"].run("touch", mine)
    return built.ok().changed()


@pytest.mark.long
def test_what_somebody_added_is_left_behind(built: Setup, added: dict[str, int]) -> None:
    assert added == {"gpu-master": 0, "gpu-worker-1": 2, "gpu-worker-2": 0}
    assert env(built.cluster["gpu-worker-1"]) == f"env.{built.lock}-again"
    assert set(built.ok().changed().values()) == {0}


@pytest.mark.long  # test_check_versions.py has it by its verb
@pytest.mark.usefixtures("added")
def test_rollback_goes_to_the_one_before_and_forward_again(built: Setup) -> None:
    host = built.cluster["gpu-worker-1"]
    now, before = env(host), host.run("readlink", f"{HOME}/env.previous").strip()
    assert built.ok(limit="gpu-worker-1", motley_python_env_rollback=True).changed() == {"gpu-worker-1": 1}
    assert env(host) == before != now
    built.ok(limit="gpu-worker-1", motley_python_env_rollback=True)
    assert env(host) == now
    refused = built.run(limit="gpu-master", motley_python_env_rollback=True)
    assert refused.rc != 0 and "no previous environment" in refused.stdout


def test_killed_in_the_middle_it_is_done_by_the_next_run(built: Setup) -> None:
    cluster, host = built.cluster, built.cluster["gpu-worker-2"]
    host.run("rm", "-rf", HOME)
    slow = f"/usr/lib/python{built.python}/sitecustomize.py"  # the new environment takes its time to load
    host.run("mv", slow, f"{slow}.before")
    # uv's own question to it is isolated (-I)
    wait = "if sys.prefix != sys.base_prefix and not sys.flags.isolated: time.sleep(3600)"
    host.run("tee", slow, stdin=f"import sys, time\n{wait}\n")
    words = ["-i", str(cluster.inventory()), "-l", "gpu-worker-2"]
    settings = built.settings(motley_python_env_imports=["tqdm"], ansible_python_interpreter="/usr/bin/python3")
    words += ["-e", json.dumps(settings)]
    command = [str(Path(sys.executable).parent / "ansible-playbook"), *words, str(built.playbook)]
    environment = os.environ | {"MOTLEY_CACHE": str(built.cache), "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    inside = ["ip", "netns", "exec", cluster.lab.place.controller, *command]
    play = subprocess.Popen(
        inside,
        cwd=REPOSITORY,
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    folder = f"{HOME}/env.{built.lock}"
    half_made = lambda: host.outcome("test", "-e", f"{folder}/bin/tqdm").returncode == 0  # noqa: E731
    pace.until(half_made, pace.HANG_S, "nothing is unpacked", every_s=0.05)
    os.killpg(play.pid, signal.SIGKILL)
    play.wait()
    faults.inject(cluster.lab, host, "reboot")  # and the node with it
    assert half_made()
    assert host.outcome("test", "-e", f"{HOME}/env").returncode != 0
    assert host.outcome("test", "-e", f"{folder}/motley-env.json").returncode != 0
    host.run("mv", f"{slow}.before", slow)
    assert built.ok().changed()["gpu-worker-2"] >= 1
    assert env(host) == f"env.{built.lock}"
    assert host.run(f"{HOME}/env/bin/python", "-c", "import yaml; print('whole')").strip() == "whole"


def test_a_wheel_that_rotted_on_the_controller_is_fetched_again(built: Setup) -> None:
    wheel = built.wheel("tqdm")
    good = wheel.read_bytes()
    wheel.write_bytes(good[:-100] + b"\0" * 100)
    small_set.fetch(built.requirements, built.python, built.cache)
    assert wheel.read_bytes() == good


@pytest.mark.long
def test_a_wheel_that_rotted_on_a_node_is_replaced_before_it_is_installed(built: Setup) -> None:
    host, wheels = built.cluster["gpu-worker-1"], f"{HOME}/.wheels/{built.lock}"
    host.run("rm", "-rf", HOME)
    built.ok(motley_python_env_keep_wheels=True)
    rot = "touch -r tqdm*.whl /tmp/when; dd if=/dev/zero of=$(echo tqdm*.whl) bs=1 count=9 seek=500 conv=notrunc"
    host.run("sh", "-c", f"cd {wheels}; {rot}; touch -r /tmp/when tqdm*.whl; rm -r {HOME}/env {HOME}/env.*")
    built.ok()
    assert host.run(f"{HOME}/env/bin/python", "-c", "import tqdm; print('good')").strip() == "good"


@pytest.mark.long
def test_undo_leaves_nothing(built: Setup) -> None:
    assert set(built.ok(part="undo").changed().values()) == {1}
    for host in built.cluster.hosts:
        assert host.outcome("test", "-e", HOME).returncode != 0
    assert set(built.ok(part="undo").changed().values()) == {0}
