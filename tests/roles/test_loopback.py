"""The cluster of folders: the same bootstrap without root, without SSH, and without touching the machine."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import pace, small_set

REPOSITORY = Path(__file__).resolve().parents[2]
WATCHED = ["/etc/hosts", "/etc/hostname", "/etc/machine-id"]
NODES = ("gpu-master", "gpu-worker-1", "gpu-worker-2")
PYTHON = "{}.{}".format(*sys.version_info[:2])


def console(*words: str, inventory: Path | str = "inventory/loopback") -> subprocess.CompletedProcess[str]:
    """As an ordinary user where the tests run as root."""
    return pace.run(
        *(sys.executable, "-m", "console", *words, "--inventory", str(inventory)),
        cwd=REPOSITORY,
        env={name: value for name, value in os.environ.items() if not name.startswith("MOTLEY_")},
    )


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one that is shipped, with a state folder of its own."""
    if reason := small_set.why_no_cpu_set(PYTHON):
        pytest.skip(f"NOT RUN: {reason}")
    folder = tmp_path_factory.mktemp("loopback") / "inventory"
    shutil.copytree(REPOSITORY / "inventory/loopback", folder)
    hosts = (
        (folder / "hosts.yml")
        .read_text()
        .replace("  hosts:\n", f"  vars: {{motley_state: {folder.parent}}}\n  hosts:\n")
    )
    (folder / "hosts.yml").write_text(hosts)
    return folder


def home(inventory: Path, node: str) -> Path:
    return inventory.parent / "loopback" / node


def test_the_inventory_is_good_and_needs_no_login() -> None:
    done = console("check")
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()[:3]] == ["127.0.0.11", "127.0.0.12", "127.0.0.13"]


def test_bootstrap_makes_three_nodes_that_compute_together_and_touches_nothing_else(inventory: Path) -> None:
    before = {path: Path(path).read_bytes() for path in WATCHED}
    done = console("bootstrap", inventory=inventory)
    assert done.returncode == 0, done.stdout + done.stderr
    for node in NODES:
        said = next(line for line in done.stdout.splitlines() if line.startswith(node))
        assert "left_alone" in said and "this node is a folder" in said
        folder = home(inventory, node)
        asked = [folder / "env/bin/python", "-m", "train", "versions", "--json"]
        told = subprocess.run(asked, cwd=folder / "code", capture_output=True, text=True, check=True)
        assert json.loads(told.stdout)["torch"] == "2.13.0+cpu"
        assert (folder / "logs/runs").is_dir() and (folder / "models/checkpoints").is_dir()
    assert "all-reduce 16 MB" in done.stdout and "gloo, 3 nodes" in done.stdout
    assert "password" not in done.stdout
    assert len({(home(inventory, node) / "env").resolve() for node in NODES}) == 1, "one environment for all"
    assert {path: Path(path).read_bytes() for path in WATCHED} == before


def test_a_second_run_changes_nothing(inventory: Path) -> None:
    assert "0 changes" in console("bootstrap", "--check", inventory=inventory).stdout
    assert "3 of 3 nodes · 0 changes" in console("bootstrap", inventory=inventory).stdout


def test_its_versions_can_be_checked(inventory: Path) -> None:
    done = console("check-versions", inventory=inventory)
    assert done.returncode == 0 and "all that must agree agrees on 3 nodes" in done.stdout, done.stdout


def test_undo_takes_the_folders_away_and_keeps_what_a_run_left(inventory: Path) -> None:
    result = home(inventory, NODES[0]) / "results/qa"
    result.mkdir()
    done = console("undo", "--phase", "all", inventory=inventory)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [str(path.relative_to(inventory.parent)) for path in (inventory.parent / "loopback").rglob("*")] == [
        "loopback/gpu-master",
        "loopback/gpu-master/results",
        "loopback/gpu-master/results/qa",
    ]
    assert "of it, static_ip changed nothing" in console("undo", "--phase", "static_ip", inventory=inventory).stderr
