"""`./motley check-versions` on real hosts: nothing installed, all equal, drifted in three ways, fixed by --fix."""

import json
import shlex

import pytest

from lab.profile import USER
from tests.support import small_set
from tests.support.bootstrap import Person, Said
from tests.support.cluster import Cluster

HOME = f"/home/{USER}/ai-cluster"


class Checker:
    def __init__(self, person: Person, cache: str) -> None:
        self.person, self.cache = person, cache

    def asks(self, *words: str) -> Said:
        """check-versions leaves no receipt: it changes nothing."""
        done = self.person.cluster.controller(
            *self.person.command("check-versions", *words),
            env=self.person.environment() | {"MOTLEY_CACHE": self.cache},
        )
        return Said(done.returncode, done.stdout + done.stderr, {})

    def failures(self) -> list[tuple[str, str, str]]:
        said = self.asks("--json")
        data = json.loads(said.out)
        assert said.rc == (0 if data["ok"] else 1)
        return [(entry["node"], entry["key"], entry["fix"]) for entry in data["failures"]]


@pytest.fixture(scope="module")
def checker(trio: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Checker:
    folder = tmp_path_factory.mktemp("checker")
    requirements = small_set.make(folder / "requirements")
    python = trio.hosts[0].run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    small_set.fetch(requirements, python, folder / "cache")
    package = folder / "train"
    package.mkdir()
    (package / "__init__.py").write_text("ANSWER = 42\n")
    person = Person(trio, folder)
    person.writes(
        motley_python_env_sets=["small"],
        motley_python_env_requirements=str(requirements),
        motley_python_env_manage=True,
        motley_workspace_package=str(package),
    )
    checker = Checker(person, str(folder / "cache"))
    person.bootstraps(phase="ssh_trust")
    return checker


def files(checker: Checker) -> dict[str, str]:
    look = f"find /home/{USER} -not -path '*/.ansible*' -printf '%p %u %m %l %s\\n' | sort"
    return {host.name: host.run("sh", "-c", look) for host in checker.person.cluster.hosts}


@pytest.mark.long  # test_bootstrap.py has --check
def test_check_tells_what_the_workspace_would_be_and_makes_nothing(checker: Checker) -> None:
    before = files(checker)
    said = checker.person.types("bootstrap", "--check", phase="workspace")
    assert said.rc == 0 and said.changed() == dict.fromkeys(before, 1), said.out
    log = (checker.person.state / "logs/bootstrap.log").read_text()
    assert f"+{HOME}/models/checkpoints" in log and "+code." in log, log
    assert files(checker) == before


@pytest.mark.long  # test_bootstrap.py has --check
def test_check_of_the_proof_starts_nothing(checker: Checker) -> None:
    said = checker.person.types("bootstrap", "--check", phase="proof")
    assert said.rc == 0 and set(said.changed().values()) == {0}, said.out
    assert "reaches every" not in said.proven("gpu-master"), "nothing is proven by not looking"


def test_where_nothing_is_installed_it_says_so_and_fix_brings_the_python_side_to_all(checker: Checker) -> None:
    said = checker.asks("--fix")
    assert "all nodes: there is no environment yet" in said.out, said.out
    assert said.rc == 0 and "all that must agree agrees on 3 nodes" in said.out, said.out
    for host in checker.person.cluster.hosts:
        for folder in (
            "data/processed",
            "models/base",
            "models/checkpoints",
            "logs/runs",
            "results",
            "config",
            "scripts",
        ):
            assert host.run("stat", "-c", "%U", f"{HOME}/{folder}").strip() == USER
        asked = [f"{HOME}/env/bin/python", "-c", "import train; print(train.ANSWER)"]
        assert host.run("env", f"PYTHONPATH={HOME}/code", *asked).strip() == "42"


def test_a_changed_package_and_changed_files_are_found_and_mended(checker: Checker) -> None:
    """Of a changed file, its package alone is brought again."""
    one, other = (checker.person.cluster[name] for name in ("gpu-worker-1", "gpu-worker-2"))
    packages = f"{HOME}/env/lib/python*/site-packages"
    one.run("sh", "-c", f"cd {packages} && mv tqdm-*.dist-info tqdm-4.0.0.dist-info")
    one.run("sh", "-c", f"echo 'ANSWER = 41' > {HOME}/code/train/__init__.py")
    before = other.run("readlink", f"{HOME}/env")
    other.run("sh", "-c", f"cd {packages} && touch -r idna/core.py /tmp/when"
              " && sed -i s/idna/ibna/g idna/core.py && touch -r /tmp/when idna/core.py")  # fmt: skip
    typed = f"./motley bootstrap --inventory {shlex.quote(str(checker.person.inventory))}"
    fix = (typed + " --phase {} --nodes {}").format
    assert sorted(checker.failures()) == [
        (one.name, "environment", fix("python_env", one.name)),
        (one.name, "train", fix("workspace", one.name)),
        (other.name, "environment", fix("python_env", other.name)),
    ]
    said = checker.asks("--fix")
    assert said.rc == 0 and "all that must agree agrees on 3 nodes" in said.out, said.out
    assert "changed: tqdm" in said.out and "changed: idna (idna/core.py)" in said.out, said.out
    assert other.run("readlink", f"{HOME}/env") == before


@pytest.mark.long  # tests/unit/plugins/modules
def test_make_goes_back_to_the_environment_before_and_forward_again(checker: Checker) -> None:
    host = checker.person.cluster["gpu-worker-1"]
    now, before = (host.run("readlink", f"{HOME}/{name}").strip() for name in ("env", "env.previous"))
    assert now != before
    settings = [f"INVENTORY={checker.person.inventory}", "PHASE=python_env", "ROLLBACK=yes", f"LIMIT={host.name}"]
    for expected in (before, now):
        environment = checker.person.environment() | {"MOTLEY_CACHE": checker.cache}
        done = checker.person.cluster.controller("make", "bootstrap", *settings, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        assert host.run("readlink", f"{HOME}/env").strip() == expected
    settings[1] = "PHASE=workspace"
    refused = checker.person.cluster.controller("make", "bootstrap", *settings)
    assert refused.returncode == 2 and "--phase python_env --rollback" in refused.stderr


@pytest.mark.long  # tests/unit/console/doctor
def test_a_library_newer_than_the_loaded_driver_is_found(checker: Checker) -> None:
    host = checker.person.cluster["gpu-worker-2"]
    loaded = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build"
    host.run("mount", "-t", "tmpfs", "simulated", "/proc/driver")
    host.run("sh", "-c", f"mkdir /proc/driver/nvidia && echo '{loaded}' > /proc/driver/nvidia/version")
    library, same = (f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.{version}" for version in ("95.05", "82.07"))
    host.run("touch", same)
    assert [entry for entry in checker.failures() if entry[1] == "driver_library"] == []
    host.run("mv", same, library)
    found = [entry for entry in checker.failures() if entry[1] == "driver_library"]
    assert found == [("gpu-worker-2", "driver_library", found[0][2])]
    assert found[0][2].startswith("sudo reboot on gpu-worker-2")
    host.run("umount", "/proc/driver")
    host.run("rm", library)


@pytest.mark.long  # test_a_changed_package_and_changed_files…
def test_another_python_is_found(checker: Checker) -> None:
    host = checker.person.cluster["gpu-worker-2"]
    patch = "/usr/lib/python3/dist-packages/other_python.pth"
    host.run("sh", "-c", f"echo \"import platform; platform.python_version = lambda: '3.9.1'\" > {patch}")
    assert [(node, key) for node, key, _ in checker.failures()] == [("gpu-worker-2", "python")]
    host.run("rm", patch)
    assert checker.failures() == []


@pytest.mark.long
def test_a_folder_outside_the_home_is_made_for_the_login_user_and_taken_back(checker: Checker) -> None:
    """The folder that Motley's own messages propose; what nobody may enter is refused before anything is changed."""
    person, host = checker.person, checker.person.cluster["gpu-worker-2"]
    shared = json.loads((person.inventory / "hosts.yml").read_text())["cluster"]["vars"]

    def at(home: str, word: str, phase: str) -> Said:
        person.writes(**shared | {"motley_home": home})
        return person.types(word, limit=host.name, phase=phase, MOTLEY_CACHE=checker.cache)

    refused = at("/root/cluster", "bootstrap", "workspace")
    assert refused.rc == 1 and "does not let the login user work in /root" in refused.out, refused.out
    assert not host.run("sh", "-c", "ls -A /root | grep cluster || true")
    for phase in ("python_env", "workspace"):
        done = at("/srv/cluster", "bootstrap", phase)
        assert done.rc == 0, done.out
    assert host.run("stat", "-c", "%U %a", "/srv/cluster").strip() == f"{USER} 755"
    assert host.run("sh", "-c", "ls /srv/cluster/env/bin/python /srv/cluster/code/train/__init__.py")
    assert at("/srv/cluster", "bootstrap", "workspace").changed() == {host.name: 0}
    assert [at("/srv/cluster", "undo", phase).rc for phase in ("workspace", "python_env")] == [0, 0]
    assert host.run("ls", "-A", "/srv").strip() == ""
    person.writes(**shared)


def test_an_off_node_is_no_success(checker: Checker) -> None:
    checker.person.cluster["gpu-worker-1"].power_cut()
    said = checker.asks()
    assert said.rc == 1 and "gpu-worker-1 was not looked at: nobody answers" in said.out, said.out
    assert "nothing odd seen" in said.out, said.out


def test_undo_takes_the_workspace_away_and_keeps_what_a_run_left(checker: Checker) -> None:
    host = checker.person.cluster["gpu-worker-2"]
    host.run("runuser", "-u", USER, "mkdir", f"{HOME}/results/qa")
    undo = {"phase": "workspace", "limit": host.name}
    assert checker.person.types("undo", **undo).changed() == {host.name: 1}
    left = host.run(
        "sh", "-c", f"cd {HOME} && find . -maxdepth 2 -not -name 'env*' -not -path './env*' -not -name '.env*'"
    )
    assert left.split() == [".", "./results", "./results/qa"], left
    assert checker.person.types("undo", **undo).changed() == {host.name: 0}
