"""What Ansible builds of our modules is kept, and is never older than their sources."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible import constants

from plugins.callback.built_once import CallbackModule

ROOT = Path(__file__).parents[3]
HOSTS = """
all:
  hosts:
    localhost: {ansible_connection: local, ansible_python_interpreter: "{{ ansible_playbook_python }}"}
"""
PLAY = "[{hosts: localhost, gather_facts: false, tasks: [{own: {}}]}]"
MODULE = """
from ansible.module_utils.basic import AnsibleModule
AnsibleModule({}).exit_json(msg="%s")
"""


def plays(folder: Path, cache: Path) -> str:
    env = {"ANSIBLE_LIBRARY": str(folder), "MOTLEY_CACHE": str(cache), "ANSIBLE_CONFIG": f"{ROOT}/ansible.cfg"}
    program = Path(sys.executable).with_name("ansible-playbook")
    command = [program, "-v", "-i", folder / "hosts.yml", folder / "play.yml"]
    done = subprocess.run(command, env=os.environ | env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(cache: Path) -> dict[str, int]:
    files = [file for file in (cache / "modules").glob("*/*own*") if file.suffix != ".lock"]
    return {str(file): file.stat().st_mtime_ns for file in files}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/hosts.yml").write_text(HOSTS)
    (tmp_path / "own/play.yml").write_text(PLAY)
    (tmp_path / "own/own.py").write_text(MODULE % "as it was")
    return tmp_path / "own"


def test_a_module_is_built_once_and_again_when_its_source_changes(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert "as it was" in plays(folder, cache)
    first = built(cache)
    assert len(first) == 1
    assert "as it was" in plays(folder, cache)
    assert built(cache) == first
    (folder / "own.py").write_text(MODULE % "otherwise")
    assert "otherwise" in plays(folder, cache)
    assert len(built(cache)) == 2


def test_where_nothing_can_be_kept_each_run_builds_its_own(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert "as it was" in plays(folder, tmp_path / "cache")


def test_what_somebody_else_has_built_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTLEY_CACHE", str(tmp_path / "cache"))
    used = []
    for name, user in (("own", os.geteuid()), ("other", os.geteuid() + 1)):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path / name))
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        CallbackModule().v2_playbook_on_start(None)
        used.append((tmp_path / name / "ansiballz_cache").exists())
    assert used == [True, False]


def test_few_states_are_kept_and_are_nobody_elses_to_write(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for state in range(10):
        old = cache / f"modules/{state}"
        old.mkdir(parents=True)
        os.utime(old, (state, state))
    plays(folder, cache)
    *old, ours = sorted((cache / "modules").iterdir(), key=lambda path: path.stat().st_mtime)
    assert [path.name for path in old] == list("3456789")
    assert ours.stat().st_mode & 0o777 == 0o700
