"""An inventory whose machines can be reached from elsewhere only says by what program a command gets there."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT, pace
from tests.support.stand_ins import program

ECHO = '#!/bin/sh\necho "there: $*, called in $MOTLEY_CALLED_IN"\n'


def called(verb: str, inventory: Path, **env: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "console", verb, "--inventory", str(inventory)]
    return pace.run(*words, cwd=ROOT, env=os.environ | env)


def test_a_command_goes_where_the_machines_are(tmp_path: Path) -> None:
    program(tmp_path / ".enter", ECHO)
    done = called("status", tmp_path, MOTLEY_CALLED_AS="./motley", MOTLEY_CALLED_IN="/somewhere")
    there = f"{sys.executable} -m console status --inventory {tmp_path}"
    assert done.stdout == f"there: {there}, called in /somewhere\n" and not done.returncode, done.stderr
    done = called("check", tmp_path)  # as it is called by its entrance: there it runs
    assert "there" not in done.stdout and done.returncode == 2, done


def test_one_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    (tmp_path / ".enter").write_text(ECHO)
    done = called("status", tmp_path, MOTLEY_CALLED_AS="./motley")
    assert done.returncode == 2 and f"fix: chmod +x {tmp_path}/.enter" in done.stderr, done.stderr


def test_the_lab_is_entered_by_its_own_controller() -> None:
    entrance = ROOT / "inventory/lab/.enter"
    assert os.access(entrance, os.X_OK)
    done = subprocess.run([entrance, "echo", "-m", "console"], capture_output=True, text=True, check=True)
    assert done.stdout == "-m lab exec -- echo -m console\n"
