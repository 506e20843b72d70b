"""This node's worker processes: started (by the fork server, while there is one), watched, and ended.

Nothing waits here but `finish`: `follow` is called several times a second and does the next thing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from train.cluster.agent_files import TrainerProgress
from train.cluster.forkserver import ForkServer, Worker, with_source
from train.cluster.heartbeat import now
from train.cluster.membership import Generation
from train.engine.staging import VARIABLE, Stage
from train.errors import BadInput
from train.plan.cluster_config import ClusterConfig
from train.plan.config import RunConfig
from train.runlog import paths

SAVE_S = 3.5
UNKILLABLE_S = 3.0
LEAVE_S = 4.5
KEEP_S = 40.0
"""Together less than the unit's TimeoutStopSec."""
Process = subprocess.Popen[bytes] | Worker


@dataclass(frozen=True)
class Failure:
    kind: str
    message: str


@dataclass(frozen=True, kw_only=True)
class WorkersSeen:
    """The workers of the generation that is followed, in one round."""

    state: str = "none"
    failure: Failure | None = None
    """Once for each group."""
    stopped: bool = False
    loading: bool = False
    unkillable: Sequence[int] = ()


@dataclass
class Work:
    """Whether processes compute or read from the disk: checked every two seconds, with all that they have started."""

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
    """The workers of one generation on this node."""

    generation: Generation
    processes: list[Process]
    causes: list[IO[bytes]]
    """Where each of them reports its failure."""
    progress: TrainerProgress
    staged: bool = False
    """They save into main memory when they leave; otherwise to the disk, which may take longer."""
    kill_at: float | None = None
    failure: Failure | None = None
    work: Work = field(default_factory=Work)

    @property
    def living(self) -> list[Process]:
        return [process for process in self.processes if process.poll() is None]

    @property
    def state(self) -> str:
        """running, failed or done. How a process exits once the run is done does not count."""
        codes, done = [process.poll() for process in self.processes], self.progress.done
        if all(code == 0 for code in codes) or (done and None not in codes):
            return "done"
        return "failed" if any(code not in (None, 0) for code in codes) and not done else "running"

    def new_failure(self) -> Failure | None:
        """Why it failed, once: of several causes the one that is not only the echo of another process's end."""
        if self.failure is not None or self.state != "failed":
            return None
        found = [self._failure(i, code) for i, p in enumerate(self.processes) if (code := p.poll())]
        self.failure = min(found, key=lambda failure: _WEIGHT.index(failure.kind))
        return self.failure

    def _failure(self, index: int, code: int) -> Failure:
        with contextlib.suppress(OSError, ValueError, KeyError):
            self.causes[index].seek(0)
            facts = json.loads(self.causes[index].read())
            return Failure(facts["kind"], facts["message"])
        if code == 143:
            return Failure("peer", "ended by SIGTERM from elsewhere")
        if code == -signal.SIGABRT and len(self.generation.members) > 1 and Path("/dev/nvidiactl").exists():
            return Failure("peer", "ended by SIGABRT: NCCL gave up on a lost peer")
        if code < 0:
            hint = " (out of memory?)" if -code == signal.SIGKILL else ""
            return Failure("own", f"its worker was ended by {signal.Signals(-code).name}{hint}")
        return Failure("own", f"its worker ended with status {code}")

    @property
    def unkillable(self) -> list[int]:
        """Those that have outlived their SIGKILL: they wait in the kernel, as for a GPU that is gone from its bus."""
        if self.kill_at is None or now() < self.kill_at + UNKILLABLE_S:
            return []
        return [process.pid for process in self.living if process.pid]

    def stop(self) -> None:
        """Let them save what is finished; what has not left in time is killed by `poll`."""
        if self.kill_at is not None:
            return
        self.kill_at = now() + (SAVE_S if self.staged else max(SAVE_S, self.progress.save_s))
        for process in self.living:
            _signal(process, signal.SIGKILL if _stopped(process) else signal.SIGTERM)

    def poll(self) -> bool:
        """Whether all are gone; what has not left in time is killed."""
        if self.kill_at is not None and now() > self.kill_at:
            for process in self.living:
                _signal(process, signal.SIGKILL)
        if self.living:
            return False
        if self.kill_at is not None:
            for process in self.processes:
                _signal(process, signal.SIGKILL)  # and what it had started itself
        return True


_WEIGHT = ("input", "check", "odd", "own", "port", "peer")


class LocalWorkers:
    """This node's workers: one group at a time, and what the last one has left in main memory."""

    def __init__(self, cluster: ClusterConfig, settings: RunConfig, settings_file: Path, program: str) -> None:
        self.cluster = cluster
        self.progress = TrainerProgress(settings.log_folder / paths.EVENTS, settings.eval_rows / settings.rows_per_step)
        self.stage = Stage(settings.checkpoint_folder(), cluster.node)
        self.group: Group | None = None
        self.forkserver: ForkServer | None = None
        self.command = [*program.split(), "run", "--config", str(settings_file), "--home", str(settings.home_folder)]
        # `never` has set the old checkpoints aside once: what is there now is this launch's own.
        resume = "auto" if settings.resume == "never" else settings.resume
        self.command += ["--run", cluster.run, "--resume", resume]

    def of(self, generation: Generation | None) -> Group | None:
        """The group of this generation, unless it is ending."""
        group = self.group
        return group if group and group.generation == generation and group.kill_at is None else None

    def look(self, generation: Generation | None) -> WorkersSeen:
        self.progress.read()
        if (group := self.of(generation)) is None:
            return WorkersSeen(unkillable=self.group.unkillable if self.group else ())
        failure, state = group.new_failure(), group.state
        running = state == "running"
        return WorkersSeen(
            state=state,
            failure=failure,
            stopped=running and any(map(_stopped, group.living)),
            loading=running and not self.progress.stepped and group.work.seen(group.living, now()),
        )

    def follow(self, generation: Generation | None) -> None:
        """Run the workers of this generation, as soon as those of another are gone and their checkpoint is kept."""
        if self.group and not self.of(generation):
            self.stop()
        if self.group is None and self.stage.is_kept() and generation is not None:
            self.progress.begin()
            self.group = self._start(generation)

    def stop(self) -> None:
        if self.group:
            self.group.stop()
            if self.group.poll():
                self.group = None

    def finish(self, show: Callable[[], None]) -> None:
        """Until the workers are gone, and what they have saved is on the disk; systemd waits for this too."""
        deadline = now() + LEAVE_S + (0 if self.group and self.group.staged else self.progress.save_s)
        while self.group and now() < deadline:
            self.stop()
            time.sleep(0.05)
        deadline = now() + KEEP_S
        while not self.stage.is_kept() and now() < deadline:
            show()  # who stops a run waits for an agent that still shows its state
            time.sleep(0.05)
        if self.stage.is_kept():
            self.stage.close()

    def _start(self, generation: Generation) -> Group:
        """Ranks follow the generation's order, the host's first."""
        own, sizes = self.cluster.node, [self.cluster.of(name).processes for name in generation.members]
        first, stage = sum(sizes[: generation.members.index(own)]), self.stage.open()
        processes: list[Process] = []
        causes: list[IO[bytes]] = []
        for local in range(self.cluster.of(own).processes):
            causes.append(os.fdopen(os.memfd_create("failure"), "rb"))
            env = with_source(os.environ) | {
                "RANK": str(first + local),
                "WORLD_SIZE": str(sum(sizes)),
                "LOCAL_RANK": str(local),
                "LOCAL_WORLD_SIZE": str(self.cluster.of(own).processes),
                "MASTER_ADDR": self.cluster.of(generation.host).address,
                "MASTER_PORT": str(generation.port),
                "MOTLEY_NODE": own,
                "MOTLEY_AGENT": str(os.getpid()),
                "MOTLEY_FAILURE": f"/proc/{os.getpid()}/fd/{causes[local].fileno()}",
                VARIABLE: stage,
            }
            if self.cluster.pipe:
                env["MOTLEY_HOLDS"] = str(self.cluster.pipe.of([own]))
            if self.cluster.interface:
                env.setdefault("GLOO_SOCKET_IFNAME", self.cluster.interface)
                env.setdefault("NCCL_SOCKET_IFNAME", f"={self.cluster.interface}")
            forked = self.forkserver.start(self.command, env) if self.forkserver else None
            processes.append(forked or _start_cold(self.command, env))
        return Group(generation, processes, causes, self.progress, staged=bool(stage))


def _start_cold(command: Sequence[str], env: dict[str, str]) -> Process:
    return subprocess.Popen([sys.executable, *command], env=env, stdin=subprocess.DEVNULL, start_new_session=True)


def _signal(process: Process, number: signal.Signals) -> None:
    if isinstance(process, Worker):
        process.send_signal(number)
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _stopped(process: Process) -> bool:
    try:
        return Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in ("T", "t")
    except OSError:
        return False


def free_port(cluster: ClusterConfig, number: int) -> int:
    """Another port for each generation, so that nothing left of an older one can answer; taken ones are skipped."""
    first, last = cluster.group_ports
    count = last - first + 1
    for i in range(count):
        port = first + (number + i) % count
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    print(f"port {port} is taken, trying the next", flush=True)
                    continue
            return port
    raise BadInput(f"no port between {first} and {last} is free", fix="see: ss -ltn")
