"""What Ansible builds of our modules is kept, is never older than their sources, and starts without being compiled."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
import zipfile
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pytest
from ansible import constants

from plugins.callback import quick_modules
from plugins.callback.quick_modules import CallbackModule
from tests.support import ROOT, pace

HOSTS = """
all:
  hosts:
    localhost: {ansible_connection: local, ansible_python_interpreter: "{{ ansible_playbook_python }}"}
"""
PLAY = "[{hosts: localhost, gather_facts: false, tasks: [{own: {}}]}]"
MODULE = """
import sys
from ansible.module_utils.basic import AnsibleModule
compiled_here = AnsibleModule.exit_json.__code__.co_filename.startswith("/")
read = "at once" if "-c" in sys.orig_argv else "slowly"
AnsibleModule({}).exit_json(msg="%s", read=read, compiled_here=compiled_here)
"""


def plays(folder: Path, cache: Path) -> str:
    env = {"ANSIBLE_LIBRARY": str(folder), "MOTLEY_CACHE": str(cache), "ANSIBLE_CONFIG": f"{ROOT}/ansible.cfg"}
    env["ANSIBLE_PIPELINING"] = "1"
    program = Path(sys.executable).with_name("ansible-playbook")
    command = [program, "-v", "-i", folder / "hosts.yml", folder / "play.yml"]
    return pace.does(*command, env=os.environ | env, cwd=ROOT).stdout


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
    for state in range(10):
        old = cache / f"modules/{state}"
        old.mkdir(parents=True)
        os.utime(old, (state, state))
    assert "as it was" in plays(folder, cache)
    first = built(cache)
    assert len(first) == 1
    *old, ours = sorted((cache / "modules").iterdir(), key=lambda path: path.stat().st_mtime)
    assert [path.name for path in old] == list("3456789"), "few states are kept"
    assert ours.stat().st_mode & 0o777 == 0o700, "nobody else can write it"
    said = plays(folder, cache)
    assert "as it was" in said and "read: at once" in said and "compiled_here: false" in said, said
    assert built(cache) == first
    (folder / "own.py").write_text(MODULE % "otherwise")
    assert "otherwise" in plays(folder, cache)
    assert len(built(cache)) == 2


@pytest.mark.parametrize(
    ("mine", "has_place", "used"),
    [(True, True, True), (False, True, False), (True, False, False)],
    ids=["what I have built", "what somebody else has built", "where nothing can be kept"],
)
def test_what_is_run_of_what_was_built_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: bool, has_place: bool, used: bool
) -> None:
    monkeypatch.setenv("MOTLEY_CACHE", str(tmp_path / ("cache" if has_place else "a file")))
    (tmp_path / "a file").touch()
    user = os.geteuid() + (0 if mine else 1)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    CallbackModule().v2_playbook_on_start(None)
    assert (tmp_path / "ansiballz_cache").exists() is used


def test_a_node_with_another_python_takes_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = io.BytesIO()
    with zipfile.ZipFile(built, "w") as file:
        file.writestr("package/__init__.py", "")
        file.writestr("package/own.py", "def where(): return where.__code__.co_filename")
    for magic, of_bytecode in ((MAGIC_NUMBER, True), (b"\0\0\r\n", False)):
        monkeypatch.setattr(quick_modules, "MAGIC_NUMBER", magic)
        made = tmp_path / f"{of_bytecode}.zip"
        made.write_bytes(base64.b64decode(quick_modules.compiled(base64.b64encode(built.getvalue()))))
        done = [sys.executable, "-c", "from package.own import where; print(where())"]
        said = subprocess.run(done, env={"PYTHONPATH": str(made)}, capture_output=True, text=True, check=True).stdout
        assert said.startswith("package/") == of_bytecode, said
