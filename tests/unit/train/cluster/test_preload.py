"""An agent that was there before its run: when it becomes the agent of one, and when it ends with nothing left."""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Timer

import pytest

from train.cluster import preload
from train.cluster.timing import Timing
from train.runlog.paths import PRELOAD, WANTED

SCRIPT = "#!/usr/bin/env bash\n# Run {run}\nexport OMP_NUM_THREADS=1\nexec env/bin/python -m train agent --config c\n"


class Process:
    def __init__(self) -> None:
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.code = -9

    def wait(self) -> int | None:
        return self.code


class Server:
    """As ForkServer, with no libraries."""

    made: Server

    def __init__(self) -> None:
        self.process = Process()
        Server.made = self


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(preload, "ForkServer", Server)
    monkeypatch.setattr(preload, "of_the_unit", lambda: True)
    for folder in ("config", "scripts", "code.1"):
        (tmp_path / folder).mkdir()
    (tmp_path / "code").symlink_to("code.1")
    (tmp_path / "scripts/launch_cluster.sh").write_text(SCRIPT.format(run="before"))
    (tmp_path / PRELOAD).touch()
    return tmp_path


def launched(home: Path, script: str = SCRIPT) -> None:
    (home / "scripts/launch_cluster.sh").write_text(script.format(run="now"))
    (home / WANTED).write_text("now\n")


def ends(home: Path) -> bool:
    with pytest.raises(SystemExit) as end:
        preload.begun_early(home)
    return end.value.code == preload.NO_RUN == 75 and Server.made.process.code == -9


def test_it_becomes_the_agent_of_the_run_that_is_wanted(home):
    Timer(0.2, launched, [home]).start()
    assert preload.begun_early(home) is Server.made and Server.made.process.code is None
    assert not (home / PRELOAD).exists() and (home / WANTED).exists()


@pytest.mark.parametrize("what", ["script", "code", "environment", "fork server"])
def test_it_ends_where_the_run_is_made_of_something_else(home, what):
    def changes():
        if what == "code":
            (home / "code").unlink()
            (home / "code").symlink_to("code.2")
        if what == "environment":
            (home / "env").mkdir()
            (home / "env/motley-env.json").write_text("{}")
        if what == "fork server":
            Server.made.process.code = 1
        launched(home, SCRIPT.replace("=1", "=2") if what == "script" else SCRIPT)

    Timer(0.2, changes).start()
    with pytest.raises(SystemExit) as end:
        preload.begun_early(home)
    assert end.value.code == preload.NO_RUN and Server.made.process.code is not None
    assert (home / WANTED).exists(), "the unit starts it now"


def test_it_ends_when_the_launch_is_refused(home):
    Timer(0.2, (home / PRELOAD).unlink).start()
    assert ends(home)


def test_it_ends_when_the_launch_is_refused_before_it_is_there(home):
    """It would else be the agent of the run before, which was stopped."""
    (home / PRELOAD).unlink()
    assert ends(home)


def test_it_ends_when_no_run_comes(home, monkeypatch):
    monkeypatch.setattr(preload, "TIMING", Timing(preload_s=0.3))
    assert ends(home)


def test_it_ends_at_once_after_a_power_cut(home):
    long_ago = time.time() - 2 * preload.TIMING.preload_s
    os.utime(home / PRELOAD, (long_ago, long_ago))
    assert ends(home)


def test_a_run_that_was_faster_is_started_as_ever(home):
    launched(home)
    assert preload.begun_early(home) is None and not (home / PRELOAD).exists()


def test_whoever_starts_it_by_hand_means_the_run(home, monkeypatch):
    monkeypatch.setattr(preload, "of_the_unit", lambda: False)
    assert preload.begun_early(home) is None
