"""A line in a process of its own, under a limit of time; whatever it started is gone afterwards.

Where the trainer's libraries are all here, lines are forks of a process that has read them (forkserver.py): that saves
five CPU-seconds each. This process is the one that orphans come to, so none can stay behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.gpu.machine import ROOT
from train.cluster.attach_to_agent import PR_SET_CHILD_SUBREAPER, prctl
from train.cluster.forkserver import ForkServer, Worker

GRACE_S = 3.0
"""What a library has started ends a moment after its parent."""


class Processes:
    def __init__(self, *, warm: bool, device: str) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.env = environment(device)
        self.before = set(children())
        """Of others; theirs."""
        self.warm = ForkServer(self.env) if warm else None
        if self.warm:
            self.before.add(self.warm.process.pid)

    def close(self) -> None:
        if self.warm:
            self.warm.process.kill()
            self.warm.process.wait()
            self.warm = None

    def run(self, words: list[str], said: Path, limit_s: float) -> str:
        """Nothing if it ended well, else why not; its words are in the file `said`."""
        with said.open("w") as out:
            process: subprocess.Popen[bytes] | Worker | None = None
            if self.warm:
                process = self.warm.start(words, self.env, out.fileno())
            if process is None:
                process = subprocess.Popen(
                    [sys.executable, *words], env=self.env, cwd=ROOT, stdout=out, stderr=out, start_new_session=True
                )
            try:
                code = process.wait(limit_s)
                why = f"it ended with {code}: {last_words(said)}" if code else ""
            except subprocess.TimeoutExpired:
                why = f"not done within {limit_s:.0f} s: {last_words(said)}"
                stop(process)
        left = self.sweep(grace_s=0 if why else GRACE_S)
        return why or (f"it left {left} processes behind" if left else "")

    def sweep(self, grace_s: float) -> int:
        """Ends what is left; how many had to be ended. Ansible keeps connections for a minute: not counted."""
        end = time.monotonic() + grace_s
        while (running := self._running()) and time.monotonic() < end:
            time.sleep(0.02)
        ended = 0
        while running := self._running():
            for pid in running:
                ended += name_of(pid) != "ssh"
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        return ended

    def _running(self) -> list[int]:
        found = []
        for pid in set(children()) - self.before:
            with suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    found.append(pid)
        return found


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def stop(process: subprocess.Popen[bytes] | Worker) -> None:
    if isinstance(process, Worker):
        process.kill()
    else:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


def children() -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                    found.append(int(folder.name))
    return found


def last_words(said: Path) -> str:
    lines = [line.strip() for line in said.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no message"


def environment(device: str) -> dict[str, str]:
    keep = ["PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "SSH_AUTH_SOCK"]
    keep += ["MOTLEY_CACHE", "MOTLEY_LAB"]
    env: dict[str, Any] = {name: os.environ[name] for name in keep if name in os.environ}
    env["PYTHONPATH"] = ":".join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    env |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTORCH_ALLOC_CONF": "expandable_segments:True"}  # as a launch has them
    env |= {"HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if device == "cpu":
        env |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "UNSLOTH_FORCE_CPU": "1"}
    return env


def read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text()))
