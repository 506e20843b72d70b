"""What befalls this node's own workers, and what follows: whose failure it is, and whether they can run here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from train.clock import Clock
from train.cluster.heartbeat import Peer
from train.cluster.may_run_here import Failures, Fitness, stuck_words
from train.cluster.node_status import Generation, NodeStatus, RunEnd
from train.cluster.start_workers import Failure, LocalWorkers, WorkersSeen

CARDS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What this node sees in one round."""

    at: float
    peers: Mapping[str, Peer]
    """The peers that are reachable, by name."""
    no_agent_s: Mapping[str, float]
    """The peers whose machines answer without an agent, and for how long."""
    workers: WorkersSeen

    @property
    def statuses(self) -> dict[str, NodeStatus]:
        return {name: peer.status for name, peer in self.peers.items() if peer.status}


class Health:
    def __init__(
        self,
        node: str,
        workers: LocalWorkers,
        clock: Clock,
        record: Callable[..., None],
        remember: Callable[[RunEnd], None],
    ) -> None:
        """`record`: writes an event of members.jsonl."""
        self.node, self.workers, self.now, self.record, self.remember = node, workers, clock.now, record, remember
        self.fitness, self.failures = Fitness(), Failures()

    def note(self, seen: Observed, condition: str, ours: Generation | None) -> str:
        """Takes in one round. `condition`: what this node reported last. Returns why its workers cannot run here, where
        that is found out now."""
        workers, progress, why = seen.workers, self.workers.progress, ""
        self._note_stuck(workers.unkillable)
        if workers.state != "none" and progress.best_step > max(self.failures.step, self.failures.host_step):
            self.failures.count = 0
            self.fitness.trained()
        if workers.failure:
            why = self._note_failure(seen, workers.failure, ours)
        if workers.state == "running":
            self.fitness.cause = "a worker is stopped" if workers.stopped else ""
        if (condition, self.fitness.condition(seen.at)) == ("resting", "fit"):
            self.fitness.cause = ""
            self.record("waiting", "its workers are tried again")
        peers = seen.statuses.values()
        if ours and (workers.state == "failed" or any(p.generation == ours and p.group == "failed" for p in peers)):
            self.failures.since = self.failures.since or seen.at
        return why

    def _note_stuck(self, pids: Sequence[int]) -> None:
        """Notes processes that cannot end: they hold the GPU, nothing can start here, and the others must not wait."""
        was, self.fitness.stuck = self.fitness.stuck, ""
        if pids:
            self.fitness.stuck = stuck_words(pids, card=CARDS.exists())
            self.fitness.cause = self.fitness.stuck
        if pids and not was:
            self.record("unfit", self.fitness.stuck, [self.node])

    def _note_failure(self, seen: Observed, failure: Failure, ours: Generation | None) -> str:
        kind, progress = whose(failure, self.node, ours, seen), self.workers.progress
        first, *rest = failure.message.removeprefix(f"{self.node}: ").strip().splitlines() or ["no message"]
        cause = first if kind != "peer" else f"lost contact with another process ({first[:160]})"
        self.fitness.cause = cause
        self.failures.step = max(self.failures.step, progress.best_step)
        if kind in ("own", "peer", "port"):
            self.record("failed", cause, [self.node], whose=kind)
        started = progress.step > 0 or any(peer.step > 0 for peer in seen.statuses.values())
        if kind == "check" or (kind in ("input", "odd") and not started):
            self.remember(RunEnd(done=False, reason=" ".join([f"{self.node}: {first}", *rest])))
        elif kind in ("own", "input", "odd"):
            condition = self.fitness.failed(cause, self.now(), own=kind == "own", run_has_trained=started)
            if condition != "fit":
                rests_s = self.fitness.rests_until - self.now()
                retry = f"; next try in {rests_s / 60:.0f} min" * (condition == "resting")
                self.record("unfit", f"its workers cannot run here: {cause}{retry}", [self.node])
                return cause
        return ""


def whose(failure: Failure, node: str, ours: Generation | None, seen: Observed) -> str:
    """Whose failure it is. An abort is most often the node's own card; else a library gave up on a silent peer."""
    if failure.kind != "aborted":
        return failure.kind
    members = ours.members if ours else ()
    return "own" if {*members} <= {node, *seen.peers} else "peer"
