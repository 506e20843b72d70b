"""The playbooks also run, without a warning, on the newest ansible-core, where a Python that carries it is at hand."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.lab.test_playbooks import PLAYBOOK
from tests.support.cluster import REPOSITORY, Cluster

CACHE = Path(os.environ.get("MOTLEY_CACHE", Path.home() / ".cache/motley"))


def newer_python() -> str | None:
    pyenv = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.1[2-9]*/bin/python3"))
    for candidate in ("python3.14", "python3.13", "python3.12", "python3", *map(str, reversed(pyenv))):
        found = shutil.which(candidate)
        check = "import sys; sys.exit(sys.version_info < (3, 12))"
        if found and subprocess.run([found, "-c", check], capture_output=True, check=False).returncode == 0:
            return found
    return None


@pytest.fixture(scope="session")
def newest(lab_allowed: None) -> Path:
    python = newer_python()
    if python is None:
        pytest.skip("NOT RUN: the newest ansible-core needs Python 3.12, which is not on this machine")
    env = CACHE / "envs/controller-newest"
    make = [REPOSITORY / "requirements/make_env.sh", env, "controller-newest"]
    subprocess.run(make, check=True, env=os.environ | {"PYTHON": python})
    return env / "bin/python"


def test_newest_runs_a_playbook_without_a_warning(trio: Cluster, newest: Path, tmp_path: Path) -> None:
    playbook = tmp_path / "play.yml"
    playbook.write_text(PLAYBOOK)
    played = trio.play(playbook, python=newest)
    assert played.rc == 0, played.stdout
    assert "WARNING" not in played.stdout and "DEPRECATION" not in played.stdout


def test_newest_reads_every_playbook_without_a_warning(newest: Path) -> None:
    playbooks = sorted((REPOSITORY / "playbooks").glob("*.yml"))
    if not playbooks:
        pytest.skip("NOT RUN: there is no playbook yet")
    done = subprocess.run(
        [newest.with_name("ansible-playbook"), "--syntax-check", "-i", "inventory/homelab", *playbooks],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr and "DEPRECATION" not in done.stderr
