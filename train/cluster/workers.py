"""A node's worker processes in one plan: started (by warm.py, while there is a warm process), watched, and ended.

Nothing here waits: `poll` is called several times a second and moves things on.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from train.cluster.forkserver import ForkServer, Worker, with_source
from train.cluster.heartbeat import now
from train.cluster.membership import Plan
from train.engine import staging
from train.plan.cluster_config import ClusterConfig

SAVE_S = 3.5
UNKILLABLE_S = 3.0
Process = subprocess.Popen[bytes] | Worker


@dataclass(frozen=True)
class Failure:
    kind: str
    message: str
    code: int


@dataclass
class Work:
    """Whether processes compute or read from the disk: looked at every two seconds, with all that they have started."""

    EVERY_S = 2.0
    at: float = 0.0
    cpu_s: float = 0.0
    read_bytes: int = 0
    found: bool = True

    def seen(self, processes: Sequence[Process], at: float) -> bool:
        if at - self.at >= self.EVERY_S:
            cpu_s, read_bytes = used_by({process.pid for process in processes if process.pid})
            if self.at:
                self.found = cpu_s - self.cpu_s > 0.5 * (at - self.at) or read_bytes - self.read_bytes > 1 << 20
            self.at, self.cpu_s, self.read_bytes = at, cpu_s, read_bytes
        return self.found


def used_by(sessions: Collection[int]) -> tuple[float, int]:
    """Processor time and bytes from the disk of all processes of these sessions."""
    ticks = read_bytes = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stat = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            if int(stat[3]) in sessions:
                ticks += sum(map(int, stat[11:15]))
                read = re.search(r"^read_bytes: (\d+)", (folder / "io").read_text(), re.MULTILINE)
                read_bytes += int(read[1]) if read else 0
    return ticks / os.sysconf("SC_CLK_TCK"), read_bytes


@dataclass
class Group:
    """The workers of one plan on this node."""

    plan: Plan
    processes: list[Process]
    causes: list[IO[bytes]]
    """Where each of them says why it failed."""
    started: float = field(default_factory=now)
    kill_at: float | None = None
    finished: bool = False
    """Set when the diary says that the run is done: what a process does after that does not count."""
    staged: bool = False
    """They save into main memory when they leave; otherwise to the disk, which may take longer."""
    save_s: float = 0.0
    failure: Failure | None = None
    work: Work = field(default_factory=Work)

    @property
    def living(self) -> list[Process]:
        return [process for process in self.processes if process.poll() is None]

    @property
    def state(self) -> str:
        """running, failed or done."""
        codes = [process.poll() for process in self.processes]
        if all(code == 0 for code in codes) or (self.finished and None not in codes):
            return "done"
        return "failed" if any(code not in (None, 0) for code in codes) and not self.finished else "running"

    def find_failure(self) -> Failure | None:
        """Why it failed: of several causes the one that is not only the echo of another process's end."""
        if self.failure is None and self.state == "failed":
            found = [self._failure(i, code) for i, p in enumerate(self.processes) if (code := p.poll())]
            self.failure = min(found, key=lambda failure: _WEIGHT.index(failure.kind))
        return self.failure

    def _failure(self, index: int, code: int) -> Failure:
        with contextlib.suppress(OSError, ValueError, KeyError):
            self.causes[index].seek(0)
            told = json.loads(self.causes[index].read())
            return Failure(told["kind"], told["message"], code)
        if code == 143:
            return Failure("peer", "ended by SIGTERM from elsewhere", code)
        if code == -signal.SIGABRT and len(self.plan.members) > 1 and Path("/dev/nvidiactl").exists():
            return Failure("peer", "ended by SIGABRT: NCCL gave up on a lost peer", code)
        if code < 0:
            hint = " (out of memory?)" if -code == signal.SIGKILL else ""
            return Failure("own", f"its worker was ended by {signal.Signals(-code).name}{hint}", code)
        return Failure("own", f"its worker ended with status {code}", code)

    def halted(self) -> bool:
        """Whether a process is stopped (SIGSTOP, a debugger)."""
        return any(_halted(process) for process in self.living)

    @property
    def unkillable(self) -> list[int]:
        """Those that have outlived their SIGKILL: they wait in the kernel, as for a card that has left its bus."""
        if self.kill_at is None or now() < self.kill_at + UNKILLABLE_S:
            return []
        return [process.pid for process in self.living if process.pid]

    def stop(self) -> None:
        """Let them save what is finished; what has not left in time is killed by `poll`."""
        if self.kill_at is not None:
            return
        self.kill_at = now() + (SAVE_S if self.staged else max(SAVE_S, self.save_s))
        for process in self.living:
            _signal(process, signal.SIGKILL if _halted(process) else signal.SIGTERM)

    def poll(self) -> bool:
        """Whether all are gone."""
        if self.kill_at is not None and now() > self.kill_at:
            for process in self.living:
                _signal(process, signal.SIGKILL)
        if self.living:
            return False
        if self.kill_at is not None:
            for process in self.processes:
                _signal(process, signal.SIGKILL)  # what a worker itself had started
        return True


_WEIGHT = ("input", "check", "odd", "own", "port", "peer")


def start(
    config: ClusterConfig, plan: Plan, words: Sequence[str], warm: ForkServer | None = None, *, stage: str = ""
) -> Group:
    """The processes of this node, `python WORDS…`; ranks follow the plan, the host's first."""
    sizes = [config.of(name).processes for name in plan.members]
    first = sum(sizes[: plan.members.index(config.node)])
    mine = config.of(config.node).processes
    processes: list[Process] = []
    causes: list[IO[bytes]] = []
    for local in range(mine):
        causes.append(os.fdopen(os.memfd_create("failure"), "rb"))
        env = with_source(os.environ) | {
            "RANK": str(first + local),
            "WORLD_SIZE": str(sum(sizes)),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(mine),
            "MASTER_ADDR": config.of(plan.host).address,
            "MASTER_PORT": str(plan.port),
            "MOTLEY_NODE": config.node,
            "MOTLEY_AGENT": str(os.getpid()),
            "MOTLEY_FAILURE": f"/proc/{os.getpid()}/fd/{causes[local].fileno()}",
            staging.VARIABLE: stage,
        }
        if config.interface:
            env.setdefault("GLOO_SOCKET_IFNAME", config.interface)
            env.setdefault("NCCL_SOCKET_IFNAME", f"={config.interface}")
        born = warm.start(words, env) if warm else None
        processes.append(born or _cold(words, env))
    return Group(plan, processes, causes, staged=bool(stage))


def _cold(words: Sequence[str], env: dict[str, str]) -> Process:
    return subprocess.Popen([sys.executable, *words], env=env, stdin=subprocess.DEVNULL, start_new_session=True)


def run_words(config: ClusterConfig, settings: Path, home: Path, resume: str, program: str) -> list[str]:
    words = [*program.split(), "run", "--config", str(settings), "--home", str(home)]
    return [*words, "--run", config.run, "--resume", resume]


def _signal(process: Process, number: signal.Signals) -> None:
    if isinstance(process, Worker):
        process.send_signal(number)
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _halted(process: Process) -> bool:
    try:
        return Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in ("T", "t")
    except OSError:
        return False
