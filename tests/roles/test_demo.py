"""The demo as an ordinary user meets it: three folders, no root. Then these folders by hand: launch, stop, fetch."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import pace, small_set
from tests.support.folders import only_loopback

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("MOTLEY_CACHE") or Path.home() / ".cache/motley")
NOBODY = 65534
# A namespace in which it is nobody: no right of root is left, and what root owns, such as the environment, can be read.
# One for all that the visitor does: from another one, the processes of an earlier command could not be looked at.
DROP = ["unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}", "--"]
ENTER = ["nsenter", "--preserve-credentials", "--user"]
PYTHON = "{}.{}".format(*sys.version_info[:2])
pytestmark = pytest.mark.timeout(1800)  # test_loopback.py may have the loopback before it
ON_FOLDERS = "INVENTORY=inventory/loopback"


class Visitor:
    """Somebody with a copy of the project and no rights; root itself where there are no such namespaces."""

    def __init__(self, home: Path) -> None:
        self.home, self.folder = home, home / "motley"
        dropped = os.geteuid() == 0 and subprocess.run([*DROP, "true"], check=False).returncode == 0
        self.nobody = subprocess.Popen([*DROP, "sleep", "infinity"]) if dropped else None
        self.drop = [*ENTER, f"--target={self.nobody.pid}", "--"] if self.nobody else []
        self.options = [] if self.drop or os.geteuid() else ["FOLDERS=1"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MOTLEY_", "MAKE", "MFLAGS"))}
        self.env = kept | {"HOME": str(home), "MOTLEY_CACHE": str(home / "cache")}

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.drop, "make", *words],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def make(self, *words: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*words)
        try:
            out, _ = pace.said_by(process, 900)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(words, process.returncode, out)

    def leave(self) -> None:
        for pid in self.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.nobody:
            self.nobody.kill()
            self.nobody.wait()
        subprocess.run(["rm", "-rf", self.home], check=True)

    def left_running(self) -> list[str]:
        return list(self.running().values())

    def running(self) -> dict[int, str]:
        """Processes whose environment or folder is this copy."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                where = (folder / "environ").read_bytes() + bytes((folder / "cwd").readlink())
                if str(self.folder).encode() in where and int(folder.name) != os.getpid():
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
        return found


@pytest.fixture(scope="module")
def visitor() -> Iterator[Visitor]:
    if reason := small_set.why_not_fetched(PYTHON):
        pytest.skip(f"NOT RUN: {reason}")
    home = Path(tempfile.mkdtemp(prefix="motley-visitor-"))
    there = Visitor(home)
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, tracked.split("\0")):
        (there.folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, there.folder / name, follow_symlinks=False)
    (there.folder / ".venv").symlink_to((REPOSITORY / ".venv").resolve())
    (home / "cache").mkdir()
    (CACHE / "wheels").mkdir(parents=True, exist_ok=True)
    (home / "cache/wheels").symlink_to(CACHE / "wheels")
    with only_loopback():
        yield there
        there.leave()


@pytest.mark.long  # lab/test_demo.py
def test_ctrl_c_leaves_nothing_running(visitor: Visitor) -> None:
    process = visitor.start("demo", "DEMO_FAST=1", *visitor.options)
    assert process.stdout
    said = []
    for line in process.stdout:
        said.append(line)
        if "machines " in line and "gpu-worker-2 ✓" in line:
            break
    plays = lambda: any("ansible-playbook" in words for words in visitor.left_running())  # noqa: E731
    pace.until(plays, pace.HANG_S, "it plays nothing")
    os.killpg(process.pid, signal.SIGINT)
    rest, _ = pace.said_by(process, 60)
    assert process.returncode != 0 and "nothing of it is left running. Again: ./motley demo" in rest, (
        "".join(said) + rest
    )
    assert visitor.left_running() == []


@pytest.fixture(scope="module")
def done(visitor: Visitor) -> subprocess.CompletedProcess[str]:
    return visitor.make("demo", "DEMO_FAST=1", *visitor.options)


def test_the_demo_comes_to_its_end_and_says_what_it_left_out(
    visitor: Visitor, done: subprocess.CompletedProcess[str]
) -> None:
    assert done.returncode == 0, done.stdout
    assert "three folders of this machine instead of three machines" in done.stdout
    assert "Left out: names, keys" in done.stdout and "sudo ./motley demo" in done.stdout
    assert "⚡ gpu-worker-1 lost at step" in done.stdout and "✓ gpu-worker-1 back · 3 of 3" in done.stdout
    assert done.stdout.count("⚡ gpu-worker-1 lost") == 1, "each thing is told once"
    assert re.search(r"⚡ the demo now kills .*⚡ gpu-worker-1 lost.*⚡ the demo now starts .*back", done.stdout, re.S)
    end = [line.split()[0] for line in done.stdout.rpartition("\n\n")[2].splitlines() if not line.startswith(" ")]
    assert end == ["done", "loss", "survived", "balanced", "adapter", "report", "stays", "next"], end
    assert json.loads((visitor.folder / "results/demo/adapter/adapter_config.json").read_text())["r"] == 16
    assert "42 of 42 steps on 3 machines" in (visitor.folder / "results/demo/report.html").read_text()
    assert visitor.left_running() == []


@pytest.mark.long
@pytest.mark.usefixtures("done")
def test_its_folders_go_on_by_hand(visitor: Visitor) -> None:
    told = "SET=max_steps=4000 rows_per_step=6 max_seq_length=32 follow=false save_every=10"
    started = visitor.make("launch", ON_FOLDERS, "MODEL=tiny", "DATASET=stdlib-qa", "RUN=mine", told)
    assert started.returncode == 0, started.stdout
    status = visitor.make("status", ON_FOLDERS).stdout
    assert "run mine" in status and status.count("checkpoint") == 3, status
    stopped = visitor.make("stop", ON_FOLDERS)
    assert stopped.returncode == 0 and stopped.stdout.count("nothing left") == 3, stopped.stdout
    assert visitor.left_running() == []
    fetched = visitor.make("fetch", ON_FOLDERS, "RUN=mine")
    assert fetched.returncode == 0 and "none yet: the run is not done" in fetched.stdout, fetched.stdout
    assert visitor.make("report", "RUN=mine").returncode == 0
    assert "stopped" in visitor.make("runs", ON_FOLDERS).stdout
    asked = visitor.make("ask", ON_FOLDERS, "RUN=mine", "QUESTION=Why?")
    assert asked.returncode == 0 and re.search(r"run mine · stopped at step \d+ of 4000 · on ", asked.stdout), (
        asked.stdout
    )
    asked = visitor.make("ask", ON_FOLDERS, "RUN=demo", 'QUESTION=What is a "list" in `python`?')
    assert asked.returncode == 0, asked.stdout
    turn = r"\nWhat is a \"list\" in `python`\?\n  before  (?s:.*)\n  after   "
    assert "run demo · on gpu-master\n" in asked.stdout and re.search(turn, asked.stdout), asked.stdout
