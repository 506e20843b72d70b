"""What keeps a workspace from being made is named with its fix, all of it at once and before anything is made."""

import base64
import io
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import ansible_runner
import pytest
import yaml

from plugins.filter.workspace import motley_package
from plugins.module_utils.motley import versions
from plugins.modules import workspace
from tests.support import ROOT
from train.runlog import paths

FOLDERS = ["models/base", "logs/runs"]


def params(**other: Any) -> dict[str, Any]:
    return {"folders": FOLDERS, "package": {}, "disk_gb": 0.0, **other}


def package(name: str = "a", path: str = "train/__init__.py") -> dict[str, str]:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        entry = tarfile.TarInfo(path)
        entry.size = len(name)
        archive.addfile(entry, io.BytesIO(name.encode()))
    return {"hash": name, "archive": base64.b64encode(raw.getvalue()).decode()}


def test_all_of_the_package_travels_and_is_counted_alike(tmp_path: Path) -> None:
    """A lock that stays behind is missed on the node only when somebody exports."""
    package = ROOT / "train"
    made = motley_package(str(package))
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(made["archive"]))) as archive:
        archive.extractall(tmp_path)
    tracked = subprocess.run(["git", "ls-files", "."], cwd=package, capture_output=True, text=True, check=True)
    assert all((tmp_path / "train" / name).is_file() for name in tracked.stdout.split())
    assert versions.package_hash(tmp_path / "train") == made["hash"]


def test_too_small_a_disk_is_named(tmp_path: Path) -> None:
    (finding,) = workspace.obstacles(tmp_path / "cluster", params(disk_gb=1e6))
    assert f"GB are free below {tmp_path}/cluster" in finding and "1e+06" in finding and "\nfix: make room" in finding
    assert not workspace.obstacles(tmp_path / "cluster", params())


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: only root can give a folder away")
def test_a_folder_of_somebody_else_is_named(tmp_path: Path) -> None:
    (tmp_path / "models/base").mkdir(parents=True)
    shutil.chown(tmp_path / "models/base", "nobody")
    (finding,) = workspace.obstacles(tmp_path, params())
    assert finding.startswith(f"{tmp_path}/models/base cannot be written by the login user") and "chown -R" in finding


def test_the_version_before_stays_for_the_run_that_uses_it(tmp_path: Path) -> None:
    home = tmp_path / "cluster"
    for name in "abc":
        assert workspace.make(home, params(package=package(name)), pretend=False)["changed"]
        os.utime(home / f"code.{name}", (ord(name), ord(name)))
    assert (home / "code/train/__init__.py").read_text() == "c"
    assert sorted(path.name for path in home.glob("code.*")) == ["code.b", "code.c"]
    assert not workspace.make(home, params(package=package("c")), pretend=False)["changed"]


def test_two_launches_at_once_bring_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both would write and remove the same folder, and what was left of it would count as whole from then on."""
    whole, both, opened = package(), threading.Barrier(2), []

    def waits(**archive: Any) -> tarfile.TarFile:
        opened.append(archive)
        with suppress(threading.BrokenBarrierError):
            both.wait(timeout=1)
        return tarfile.TarFile.open(**archive)

    monkeypatch.setattr(workspace.tarfile, "open", waits)
    with ThreadPoolExecutor(2) as launches:
        done = [launches.submit(workspace.make, tmp_path, params(package=whole), pretend=False) for _ in range(2)]
        assert all(one.result()["changed"] for one in done)
    assert len(opened) == 1 and (tmp_path / "code/train/__init__.py").read_text() == "a"
    assert not workspace.make(tmp_path, params(package=whole), pretend=False)["changed"]


def test_code_that_somebody_edited_is_brought_anew(tmp_path: Path) -> None:
    workspace.make(tmp_path, params(package=package()), pretend=False)
    (tmp_path / "code/train/__init__.py").write_text("edited")
    assert workspace.make(tmp_path, params(package=package()), pretend=False)["changed"]
    assert (tmp_path / "code/train/__init__.py").read_text() == "a"


def test_a_full_disk_does_not_cost_the_list_of_what_was_made(tmp_path: Path) -> None:
    workspace.make(tmp_path, params(), pretend=False)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            workspace.make(tmp_path, params(folders=["results"]), pretend=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert workspace.make(tmp_path, params(folders=["config"]), pretend=False)["changed"]
    workspace.remove(tmp_path, pretend=False)
    assert [path.name for path in tmp_path.iterdir()] == ["results"], "which nobody could write down"


def test_undo_names_what_it_keeps_once(tmp_path: Path) -> None:
    home = tmp_path / "ai-cluster"
    workspace.make(home, params(package=package(), folders=["models/base", "results"]), pretend=False)
    (home / "results/qa").mkdir()
    (home / "models/base/own").write_text("mine")
    said = workspace.remove(home, pretend=False)["motley_say"]
    assert said == f"{home}: models, results kept, for there is something in them"


def test_undo_takes_the_address_that_a_launch_has_brought(tmp_path: Path) -> None:
    workspace.make(tmp_path, params(package=package(), folders=["config"]), pretend=False)
    (tmp_path / paths.SECRET).write_text("https://ntfy.example/secret\n")
    workspace.remove(tmp_path, pretend=False)
    assert list(tmp_path.iterdir()) == []


def test_that_it_changed_something_reaches_whoever_shows_it(tmp_path: Path) -> None:
    """ansible-runner replaces a result of 700 000 bytes by a note, and the package was part of it."""
    task = {"home": str(tmp_path / "home"), "folders": FOLDERS, "disk_gb": 0.0}
    task |= {"package": {"hash": "a", "archive": package()["archive"] + "\n" * 700_000}}
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"here": host}}}))
    play = {"hosts": "here", "gather_facts": False, "tasks": [{"workspace": task}]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    program = Path(sys.executable).with_name("ansible-playbook")
    told: list[Any] = []
    done = ansible_runner.run(
        private_data_dir=str(tmp_path),
        playbook=str(tmp_path / "play.yml"),
        inventory=str(tmp_path / "hosts.yml"),
        envvars={"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "PATH": f"{program.parent}:{os.environ['PATH']}"},
        event_handler=lambda event: told.append(event["event_data"].get("res")) or False,
        quiet=True,
        cancel_callback=lambda: False,
    )
    assert done.status == "successful"
    assert [result["changed"] for result in told if result] == [True]
