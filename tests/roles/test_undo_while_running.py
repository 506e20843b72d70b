"""An undo takes no machine from under a run: it says who runs what, and changes nothing until it is stopped."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.roles.test_loopback import console
from tests.support import pace
from tests.support.bootstrap import hint
from tests.support.live_run import NODES, LiveRun


@pytest.mark.long  # tests/lab/test_run_life.py
def test_an_undo_changes_nothing_until_the_run_is_stopped(tmp_path: Path) -> None:
    with LiveRun(tmp_path / "live") as run:
        for node in NODES:
            (run.folder / node / "code.1").mkdir()
            (run.folder / node / "code").symlink_to("code.1")
        for node in NODES[1:]:
            run.agents[node].kill()
            run.agents[node].wait()
        there = {*run.folder.rglob("*")}
        refused = console("undo", "--phase", "all", inventory=run.inventory)
        assert refused.returncode == 1
        assert "run qa is running there: nothing was undone, on no machine" in refused.stdout + refused.stderr
        assert re.search(f"fix: {hint('stop')}, then again", refused.stdout + refused.stderr)
        assert {*run.folder.rglob("*")} >= there, "something was undone"
        run.agents["gpu-master"].send_signal(signal.SIGTERM)
        pace.until(lambda: run.agents["gpu-master"].poll() is not None, 20)
        done = console("undo", "--phase", "all", inventory=run.inventory)
        assert done.returncode == 0, done.stdout + done.stderr
        assert not any((run.folder / node / "code").exists() for node in NODES)
