"""Which nodes load before a launch is ready, and what others see of it: nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plugins.module_utils.motley import preloading, run_processes, start_stop_status
from tests.support import pace
from train.runlog.paths import CLUSTER, PAUSE, PRELOAD, WANTED

AGENT = "import time; print('on', flush=True); time.sleep(60)"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home, unit = tmp_path / "home", tmp_path / "motley-run.path"
    for folder in ("config", "scripts", "logs/runs/r"):
        (home / folder).mkdir(parents=True)
    (home / "config/cluster_config.yaml").write_text("run: r\n")
    (home / "scripts/launch_cluster.sh").write_text("exec env/bin/python -m train agent --cluster c\n")
    unit.write_text(f"[Path]\nPathExists={home / WANTED}\nPathExists={home / PRELOAD}\n\n[Install]\n")
    monkeypatch.setattr(preloading, "PATH_UNIT", unit)
    monkeypatch.setattr(preloading, "unit_of", lambda _: "ours")
    monkeypatch.setattr(preloading, "available_bytes", lambda: 8 << 30)
    return home


@pytest.fixture
def loading(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """An agent of the unit, before its run."""
    monkeypatch.setattr(run_processes, "UNIT", "")  # every process is of that unit
    assert preloading.begin(home) and (home / PRELOAD).exists()
    env = dict(os.environ, MOTLEY_HOME=str(home))
    agent = subprocess.Popen([sys.executable, "-c", AGENT, "train", "agent"], env=env, stdout=subprocess.PIPE)
    assert agent.stdout and agent.stdout.readline() == b"on\n"
    yield agent
    agent.kill()
    agent.wait()


UNFIT: dict[str, Callable[[Path], object]] = {
    "no launch before": lambda home: (home / "scripts/launch_cluster.sh").unlink(),
    "a script of one's own before": lambda home: (home / "scripts/launch_cluster.sh").write_text(
        "exec env/bin/python -m train torchrun x.py\n"
    ),
    "a unit of an older version": lambda home: preloading.PATH_UNIT.write_text(f"[Path]\nPathExists={home / WANTED}\n"),
    "limits of a card": lambda home: (home / CLUSTER).write_text('limits: {"watts": 200}\n'),
    "paused": lambda home: (home / PAUSE).write_text(""),
}


@pytest.mark.parametrize("what", UNFIT)
def test_a_node_that_cannot_is_left_alone(home: Path, what: str) -> None:
    UNFIT[what](home)
    assert not preloading.begin(home) and not (home / PRELOAD).exists()


@pytest.mark.parametrize(("name", "value"), [("available_bytes", 1 << 30), ("unit_of", "other")])
def test_no_memory_or_no_unit(home: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    monkeypatch.setattr(preloading, name, lambda *_: value)
    assert not preloading.begin(home) and not (home / PRELOAD).exists()


def test_what_loads_is_no_run_until_one_is_wanted(home: Path, loading: subprocess.Popen[bytes]) -> None:
    seen = start_stop_status.look(home)
    assert (seen["on"], seen["agent"], seen["wanted"]) == (False, 0, False) and not run_processes.processes(home)
    (home / WANTED).write_text("r\n")
    assert run_processes.processes(home)[loading.pid]["part"] == "agent"


def test_stop_ends_it_and_says_that_no_run_was_there(home: Path, loading: subprocess.Popen[bytes]) -> None:
    told = start_stop_status.stop(home)
    assert not told["was_on"] and told["left"] == [] and pace.ended(loading, 5) == -15
    assert not (home / PRELOAD).exists()


def test_a_launch_that_is_refused_takes_it_back(
    home: Path, loading: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_stop_status, "UNLOAD_S", 0.1)
    start_stop_status.unload(home)
    assert not (home / PRELOAD).exists(), "the agent sees that: tests/unit/train/cluster/test_preload.py"


def test_a_start_waits_until_it_has_taken_the_run(
    home: Path, loading: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_stop_status, "unit_of", lambda _: "ours")
    monkeypatch.setattr(start_stop_status, "leaving", lambda: False)
    assert "failed" in start_stop_status.start(home, "r", wait_s=0.3)
    (home / WANTED).unlink(missing_ok=True)
    preloading.begin(home)
    monkeypatch.setattr(start_stop_status.time, "sleep", lambda _: (home / PRELOAD).unlink(missing_ok=True))
    assert start_stop_status.start(home, "r")["pid"] == loading.pid
