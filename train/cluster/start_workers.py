"""This node's worker processes: started (by the fork server, while there is one), watched, and ended.

Nothing waits here but `finish`: `start_or_move` is called several times a second and does the next thing.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from train.cluster.agent_files import TrainerProgress
from train.cluster.agent_surroundings import Outside
from train.cluster.node_status import Generation
from train.cluster.processes import Process
from train.cluster.timing import TIMING
from train.engine.checkpoint_in_memory import VARIABLE, Staging
from train.engine.shutdown import WAITS
from train.errors import BadInput
from train.plan.launch.cluster_config import ClusterConfig
from train.plan.settings.read_settings import RunConfig
from train.runlog import paths


@dataclass(frozen=True)
class Failure:
    kind: str
    message: str


@dataclass(frozen=True, kw_only=True)
class WorkersSeen:
    """The workers of the generation that is followed, in one round."""

    state: str = "none"
    failure: Failure | None = None
    """Why the group failed, told once for each group."""
    stopped: bool = False
    loading: bool = False
    unkillable: Sequence[int] = ()


@dataclass
class Work:
    """Whether processes compute or read from the disk, with all that they have started."""

    at: float = 0.0
    cpu_s: float = 0.0
    read_bytes: int = 0
    was_seen: bool = True

    def seen(self, processes: Sequence[Process], outside: Outside) -> bool:
        at = outside.clock.now()
        if at - self.at >= TIMING.work_s:
            cpu_s, read_bytes = outside.processes.used_by({process.pid for process in processes if process.pid})
            if self.at:
                self.was_seen = cpu_s - self.cpu_s > 0.5 * (at - self.at) or read_bytes - self.read_bytes > 1 << 20
            self.at, self.cpu_s, self.read_bytes = at, cpu_s, read_bytes
        return self.was_seen


@dataclass
class Group:
    """The workers of one generation on this node. They may stay where the next generation has this node, and keep what
    they hold; none: they wait for one."""

    generation: Generation | None
    processes: list[Process]
    progress: TrainerProgress
    outside: Outside
    has_room: Callable[[float], bool] = lambda _: False
    """Whether main memory takes so many bytes: they save there when they leave; the disk may take longer."""
    word: int = 0
    """The number of the last word that they were told."""
    obeys_until: float | None = None
    slowest_s: float = 0.0
    """Seconds of its slowest step: until a step is over, a word may not be heard."""
    held_since: float | None = None
    kill_at: float | None = None
    failure: Failure | None = None
    work: Work = field(default_factory=Work)

    def __post_init__(self) -> None:
        self.started = self.outside.clock.now()

    @property
    def living(self) -> list[Process]:
        return [process for process in self.processes if process.poll() is None]

    @property
    def state(self) -> str:
        """The group's state: running, failed or done. How a process exits once the run is done does not count."""
        codes, done = [process.poll() for process in self.processes], self.progress.done
        if all(code == 0 for code in codes) or (done and None not in codes):
            return "done"
        failed = any(
            code not in (None, 0) or (code is None and p.reported())
            for p, code in zip(self.processes, codes, strict=True)
        )
        return "failed" if failed and not done else "running"

    @property
    def can_stay(self) -> bool:
        """Whether each of them trains, or waits for another group."""
        able = (p.poll() is None and p.can_stay() and not p.is_stopped() for p in self.processes)
        return self.kill_at is None and all(able)

    def tell(self, generation: Generation | None, env: Callable[[int], Mapping[str, str]]) -> None:
        self.generation, self.failure, self.word = generation, None, self.word + 1
        self.slowest_s = max(self.slowest_s, self.progress.step_s)
        self.obeys_until = self.outside.clock.now() + max(TIMING.obey_s, 2 * self.slowest_s)
        self.held_since = None if generation else self.outside.clock.now()
        for local, process in enumerate(self.processes):
            process.tell(self.word, env(local) if generation else {})

    def is_deaf(self) -> bool:
        """Whether it is still in a group though told of another, or long without one: its memory is somebody else's."""
        now = self.outside.clock.now()
        if self.obeys_until is not None and all(process.has_obeyed(self.word) for process in self.processes):
            self.obeys_until = None
        late = self.obeys_until is not None and now > self.obeys_until
        return late or (self.held_since is not None and now > self.held_since + TIMING.held_s)

    @property
    def cannot_load(self) -> bool:
        return self.generation is None and self.failure is not None and not self.can_stay

    def new_failure(self) -> Failure | None:
        """Why it failed, once: of several causes the one that is not only the echo of another process's end."""
        if self.failure is not None or self.state != "failed":
            return None
        failures = [self._failure(p, code or 0) for p in self.processes if (code := p.poll()) or p.reported()]
        self.failure = min(failures, key=lambda failure: _WEIGHT.index(failure.kind))
        return self.failure

    def _failure(self, process: Process, code: int) -> Failure:
        with contextlib.suppress(OSError, ValueError, KeyError):
            facts = json.loads(process.reported())
            return Failure(facts["kind"], facts["message"])
        if code == 143:
            return Failure("peer", "ended by SIGTERM from elsewhere")
        if code == -signal.SIGABRT:
            return Failure("aborted", "its worker was ended by SIGABRT")
        if code < 0:
            hint = " (out of memory?)" if -code == signal.SIGKILL else ""
            return Failure("own", f"its worker was ended by {signal.Signals(-code).name}{hint}")
        return Failure("own", f"its worker ended with status {code}")

    @property
    def unkillable(self) -> list[int]:
        """Processes that have outlived their SIGKILL in the kernel, as where a GPU is gone from its bus. On a busy
        machine that takes longer; and what does not wait there is ending."""
        over_s = -1.0 if self.kill_at is None else self.outside.clock.now() - self.kill_at
        if over_s < TIMING.unkillable_s:
            return []
        soon_s = min(TIMING.stuck_s, TIMING.unkillable_s * self.outside.processes.pace())
        return [p.pid for p in self.living if p.pid and over_s > (soon_s if p.waits_in_kernel() else TIMING.stuck_s)]

    def stop(self) -> None:
        """Let them save what is finished; what has not left in time is killed by `poll`."""
        if self.kill_at is not None:
            return
        self.kill_at = self.outside.clock.now() + self.saves_s
        for process in self.living:
            process.send(signal.SIGKILL if process.is_stopped() else signal.SIGTERM)

    @property
    def saves_s(self) -> float:
        return self.progress.leaving_s(in_memory=self.has_room(self.progress.saved_bytes))

    def poll(self) -> bool:
        """Whether all are gone; what has not left in time is killed."""
        if self.kill_at is not None and self.outside.clock.now() > self.kill_at:
            for process in self.living:
                process.send(signal.SIGKILL)
        if self.living:
            return False
        if self.kill_at is not None:
            for process in self.processes:
                process.send(signal.SIGKILL)  # and what it had started itself
        return True


_WEIGHT = ("input", "check", "odd", "own", "aborted", "port", "peer")


class LocalWorkers:
    """This node's workers: one group at a time, and what the last one has left in main memory."""

    def __init__(
        self, cluster: ClusterConfig, settings: RunConfig, program: Sequence[str], outside: Outside, stage: Staging
    ) -> None:
        self.cluster, self.settings, self.outside, self.stage = cluster, settings, outside, stage
        eval_steps = settings.eval_rows / settings.rows_per_step
        self.progress = TrainerProgress(settings.log_folder / paths.EVENTS, eval_steps, outside)
        self.group: Group | None = None
        self.command = [*program, "--home", str(settings.home_folder)]
        # `never` has set the old checkpoints aside once: what is there now is this launch's own.
        resume = "auto" if settings.resume == "never" else settings.resume
        self.command += ["--run", cluster.run, "--resume", resume]

    def of(self, generation: Generation | None) -> Group | None:
        """The group of this generation, unless it is ending."""
        group = self.group
        return group if group and generation and group.generation == generation and group.kill_at is None else None

    def look(self, generation: Generation | None) -> WorkersSeen:
        self.progress.read()
        if (group := self.of(generation)) is None:
            unkillable = self.group.unkillable if self.group else ()
            return WorkersSeen(failure=self._cannot_load(), unkillable=unkillable)
        failure, state = group.new_failure(), group.state
        running = state == "running"
        return WorkersSeen(
            state=state,
            failure=failure,
            stopped=running and any(process.is_stopped() for process in group.living),
            loading=running and not self.progress.stepped and group.work.seen(group.living, self.outside),
        )

    def start_or_move(self, generation: Generation | None) -> None:
        """Run the workers of this generation: those of the last, where they can stay; else others, as soon as those are
        gone and their checkpoint is kept."""
        group = self.group
        if group and generation and not self.of(generation) and group.can_stay:
            group.tell(generation, partial(in_group, self.cluster, generation))
            self.progress.begin()
        if group and (group.kill_at or group.generation != generation or group.is_deaf() or group.cannot_load):
            self.stop()
        if self.group is None and self.stage.is_kept() and generation is not None:
            self.progress.begin()
            self.group = self._start(generation)

    def hold(self) -> None:
        """Holds its workers without a generation for a moment: they keep what they hold, and train with nobody."""
        group = self.group
        if group and group.can_stay and group.generation:
            group.tell(None, lambda _: {})
        elif group and not group.generation and group.held_since is None:
            group.held_since = self.outside.clock.now()

    def prepare(self) -> None:
        """Lets its workers load beside the generation of the others, and keep what they hold until it takes them in."""
        self.hold()
        if self.group is None and self.can_prepare and self.stage.is_kept():
            self.group = self._start(None)
        if self.group and not self.group.generation:
            self.group.held_since = None

    @property
    def can_prepare(self) -> bool:
        """Whether a worker finds alone what it will be asked for: what was decided as the run began."""
        settings = self.settings
        restarts = settings.sync == "local" or settings.optimizer == "muon" or settings.exchange == "nccl"
        if restarts or settings.profile or self.cluster.pipe:  # none that trains now would stay either
            return False
        with contextlib.suppress(OSError):
            return self.outside.disk.changed_ns(settings.checkpoint_folder() / paths.DECIDED) > 0
        return False

    @property
    def ready(self) -> bool:
        return not self.can_prepare or bool(self.group and self.group.can_stay)

    def _cannot_load(self) -> Failure | None:
        """Why workers that were to load for the next generation have not."""
        group = self.group
        if group is None or group.generation or group.kill_at is not None:
            return None
        if failure := group.new_failure():
            return failure
        late = not group.can_stay and self.outside.clock.now() - group.started > TIMING.first_step_s
        if late and group.failure is None:
            group.failure = Failure("own", f"its worker has not loaded within {TIMING.first_step_s:.0f} s")
            return group.failure
        return None

    def stop(self) -> None:
        if self.group:
            self.group.stop()
            if self.group.poll():
                self.group = None

    def finish(self, show: Callable[[], None]) -> None:
        """Waits until the workers are gone, and what they have saved is on the disk; systemd waits for this too."""
        clock = self.outside.clock
        deadline = clock.now() + self.saves_s + TIMING.gone_s
        while self.group and clock.now() < deadline:
            self.stop()
            show()
            clock.sleep(0.05)
        deadline = clock.now() + TIMING.keep_s
        while not self.stage.is_kept() and clock.now() < deadline:
            show()  # who stops a run waits for an agent that still shows its state
            clock.sleep(0.05)
        if self.stage.is_kept():
            self.stage.close()

    @property
    def saves_s(self) -> float:
        """What its workers would have for saving, were they told to go now."""
        return self.group.saves_s if self.group else 0.0

    def _start(self, generation: Generation | None) -> Group:
        stage, count = self.stage.open(), self.cluster.of(self.cluster.node).processes
        env_of = partial(in_group, self.cluster, generation) if generation else partial(alone, self.cluster)
        processes = [
            self.outside.processes.start(self.command, env_of(local) | {VARIABLE: stage}) for local in range(count)
        ]
        return Group(generation, processes, self.progress, self.outside, self.stage.has_room)

    def free_port(self, number: int) -> int:
        """Another port for each generation, so that nothing left of an older one can answer; taken ones are skipped."""
        first, last = self.cluster.group_ports
        count = last - first + 1
        for i in range(count):
            port = first + (number + i) % count
            if self.outside.network.is_free(port):
                return port
            self.outside.say(f"port {port} is taken, trying the next")
        raise BadInput(f"no port between {first} and {last} is free", fix="see: ss -ltn")


def alone(cluster: ClusterConfig, local: int) -> dict[str, str]:
    """What a worker is told by environment variables that loads before it is in a group."""
    return {"MOTLEY_NODE": cluster.node, "LOCAL_RANK": str(local), WAITS: "1"}


def in_group(cluster: ClusterConfig, generation: Generation, local: int) -> dict[str, str]:
    """Its rank, how many there are, and where the group meets. Ranks follow the generation's order, the host's first.
    What libraries are told: templates/launch_cluster.sh.j2."""
    node, sizes = cluster.node, [cluster.of(name).processes for name in generation.members]
    who = f"store {generation.number} {generation.host} {generation.port}"
    env = {
        "RANK": str(sum(sizes[: generation.members.index(node)]) + local),
        "WORLD_SIZE": str(sum(sizes)),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(cluster.of(node).processes),
        "MASTER_ADDR": cluster.of(generation.host).address,
        "MASTER_PORT": str(generation.port),
        "MOTLEY_NODE": node,
        "MOTLEY_GENERATION": str(generation.number),
        "MOTLEY_STORE_KEY": hmac.digest(cluster.token.encode(), who.encode(), "sha256").hex(),
    }
    if cluster.pipe:
        env["MOTLEY_HOLDS"] = str(cluster.pipe.of([node]))
    if interface := cluster.interface:
        networks = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"}
        env |= {name: os.environ.get(name, value) for name, value in networks.items()}
    return env
