"""`python -m train agent`: keeps a run running on this node, together with the agents of the other nodes.

    python -m train agent --cluster config/cluster_config.yaml --config config/training_config.yaml

Several times a second it observes the peers (heartbeat.py) and its own workers (start_workers.py), notes what happened,
decides by the same rules as all others (membership.py), and acts: its workers run as long as they belong to the
generation. Exit codes: 0 the run is done, 1 it failed, 2 bad input, 143 stopped by a signal, 70 the agent failed
itself: the run has not ended, and the unit starts it again, 75 no run came (preload.py).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from train.cluster import membership, preload
from train.cluster.agent_files import AgentMemory, MemberLog, StatusFile
from train.cluster.agent_surroundings import Outside
from train.cluster.forkserver import ForkServer
from train.cluster.gpu_log import GpuReadings
from train.cluster.heartbeat import Heartbeat
from train.cluster.lost_soon_after_joining import Newcomers
from train.cluster.node_status import Generation, NodeStatus, RunEnd
from train.cluster.notice_ledger import Lost
from train.cluster.notifier import NodeNotifier
from train.cluster.processes import Processes
from train.cluster.queue_gossip import QueueKeeper
from train.cluster.run_the_queue import TurnSignals, agent_in_turn
from train.cluster.start_workers import LocalWorkers, WorkersSeen
from train.cluster.step_aside import StepAside
from train.cluster.timing import TIMING
from train.cluster.worker_failures import Health, Observed
from train.engine.checkpoint_in_memory import Staging
from train.errors import BadInput
from train.plan.launch.cluster_config import ClusterConfig, read_cluster
from train.plan.settings.read_settings import RunConfig, load_config, read_yaml
from train.runlog import paths
from train.safe_stdio import may_get_lost
from train.send_notice import Notice, send

FAILED_ITSELF = os.EX_SOFTWARE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster", type=Path, required=True, help="cluster_config.yaml: who trains, and where")
    parser.add_argument("--wait-s", type=float, default=60.0, help="how long the first generation waits for all nodes")
    parser.add_argument("--program", default="-m train", help=argparse.SUPPRESS)  # tests train with a broken one


def main(args: argparse.Namespace) -> int:
    may_get_lost()
    home = Path(os.environ.get("MOTLEY_HOME", "."))
    forkserver = preload.begun_early(home)
    return agent_in_turn(home, args.cluster, lambda keeper: agent(args, keeper, forkserver).run())


def agent(args: argparse.Namespace, keeper: QueueKeeper, forkserver: ForkServer | None) -> Agent:
    cluster = read_cluster(args.cluster)
    if args.config is None:
        raise BadInput("the settings of the run are missing", fix="add: --config config/training_config.yaml")
    settings = load_config(read_yaml(args.config, "config file") | {"run": cluster.run})
    outside = Outside(processes=Processes(forkserver), signals=TurnSignals(keeper))
    program = [*args.program.split(), "run", "--config", str(args.config)]
    workers = LocalWorkers(cluster, settings, program, outside, Staging(settings.checkpoint_folder(), cluster.node))
    gpus = GpuReadings(settings.log_folder / paths.GPU, cluster.node)
    return Agent(cluster, settings, workers, outside, keeper, gpus=gpus, wait_s=args.wait_s)


class Agent:
    def __init__(
        self,
        cluster: ClusterConfig,
        settings: RunConfig,
        workers: LocalWorkers,
        outside: Outside,
        keeper: QueueKeeper,
        *,
        gpus: GpuReadings,
        wait_s: float,
        send: Callable[[str, Notice], str] = send,
    ) -> None:
        self.cluster, self.settings, self.workers = cluster, settings, workers
        self.outside, self.keeper = outside, keeper
        self.gpus, self.wait_s, self.now = gpus, wait_s, outside.clock.now
        folder = settings.log_folder
        outside.disk.make_folder(folder)
        self.memory = AgentMemory.load(folder / paths.MEMORY, cluster.token, outside)
        self.log = MemberLog(folder, cluster.node, outside)
        self.file = StatusFile(folder / paths.AGENT, outside)
        self.shown: tuple[object, ...] = ()
        self.newcomers = Newcomers()
        self.health = Health(cluster.node, workers, outside.clock, self._record, self._remember)
        self.stepping = StepAside(settings.home_folder, cluster.aside)
        self.notifier = NodeNotifier(cluster, settings.home_folder / paths.SECRET, self.memory, outside, send)
        self.generation: Generation | None = None
        self.last_generation: Generation | None = None
        self.reason, self.idle = "starting", membership.Idle("")
        self.status = NodeStatus(name=cluster.node, number=self.memory.number, begun=self.memory.begun)
        self.heartbeat = Heartbeat(cluster, lambda: self.status, outside)
        self.stop_signal = 0
        self.up_since = self.now()

    # -- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> int:
        self._listen()
        try:
            self._start()
            return self._keep_running()
        except Exception as error:  # one that nobody has thought of must not end the run here
            traceback.print_exc()
            return self._fail(error)

    def _keep_running(self) -> int:
        while True:
            if self.heartbeat.woke.is_set():
                self._wake()
            seen = self._observe()
            self._note(seen)
            if self.outside.signals.time_is_over():
                self.stop_signal = self.stop_signal or signal.SIGTERM
            if self.stop_signal:
                return self._leave(f"stopped by {signal.Signals(self.stop_signal).name}")
            view = self._view(seen)
            self._publish(view.me)
            action = membership.decide(view)
            if isinstance(action, membership.End):
                return self._end(action.verdict)
            if isinstance(action, membership.Leave):
                self.stop_signal = signal.SIGTERM  # not wanted any more, as after a stop
                return self._leave(action.reason)
            self._act(action)
            self.notifier.look(self.status, seen.statuses, self.idle.reason if self.idle.too_few else "")
            self.workers.start_or_move(self.generation)
            self.keeper.has_group = self.generation is not None
            self._show()
            if self.heartbeat.news.wait(TIMING.tick_s):
                self.outside.clock.sleep(TIMING.burst_s)
                self.heartbeat.news.clear()

    def _listen(self) -> None:
        self.outside.signals.listen(self._on_signal)
        try:
            self.heartbeat.start()
        except OSError as error:
            where = f"{self.cluster.of(self.cluster.node).address} port {self.cluster.presence_port}"
            raise BadInput(
                f"the agent cannot listen: {error.strerror}", where, "see: systemctl status motley-run"
            ) from None

    def _start(self) -> None:
        if not self.memory.verdict:
            self.outside.processes.warm()
        self._record("up", f"{self.cluster.run} on {', '.join(self.cluster.order)}", self.cluster.order)
        if self.settings.resume == "never" and not self.memory.begun:
            # Once for each launch and node: a later generation resumes what was trained since.
            self.outside.disk.set_aside(self.settings.checkpoint_folder())
            self.memory.save()

    # -- observing -----------------------------------------------------------------------------------------------

    def _observe(self) -> Observed:
        workers, peers, at = self.workers.look(self.generation), self.heartbeat.snapshot(), self.now()
        no_agent_s = {name: at - peer.no_agent_since for name, peer in peers.items() if peer.no_agent_since}
        reachable = {name: peer for name, peer in peers.items() if peer.reachable(at)}
        return Observed(at=at, peers=reachable, no_agent_s=no_agent_s, workers=workers)

    def _status(self, seen: Observed) -> NodeStatus:
        return NodeStatus(
            name=self.cluster.node,
            number=self.memory.number,
            generation=self.generation,
            reachable=tuple(name for name in self.cluster.order if name in seen.peers),
            is_new=seen.at - self.up_since < TIMING.settle_s,
            **self.stepping.status(self.health.fitness, seen.at),
            group=seen.workers.state,
            loading=seen.workers.loading,
            ready=self.workers.ready,
            step=self.workers.progress.step,
            begun=self.memory.begun,
            verdict=self.memory.verdict,
            **self.notifier.status,
        )

    def _view(self, seen: Observed) -> membership.NodeView:
        progress, failures = self.workers.progress, self.health.failures
        return membership.NodeView(
            order=self.cluster.order,
            me=self._status(seen),
            peers=seen.statuses,
            room=self.cluster.room,
            age_s={name: seen.at - peer.at for name, peer in seen.peers.items()},
            no_agent_s=seen.no_agent_s,
            welcome=self.newcomers.welcome(seen.peers, seen.at),
            wall=self.outside.clock.wall(),
            up_s=seen.at - self.up_since,
            wait_all_s=self.wait_s,
            failures=failures.count,
            failed_s=seen.at - failures.since if failures.since else 0.0,
            idle_s=seen.at - progress.since,
            limit_s=progress.limit_s,
        )

    # -- what happened here --------------------------------------------------------------------------------------

    def _note(self, seen: Observed) -> None:
        workers, progress = seen.workers, self.workers.progress
        if change := self.stepping.look(self.outside.clock.wall(), seen.at):
            rule = {"rule": self.stepping.now.rule} if self.stepping.now else {}
            self._record(*change, [self.cluster.node], **rule)
        self.reason = self.health.note(seen, self.status.condition, self.generation) or self.reason
        self._note_end(workers)
        if self.memory.verdict is None and (verdict := self.keeper.verdict()):
            self._remember(verdict)
        if workers.loading or any(peer.loading for peer in seen.statuses.values()):
            progress.note_loading(seen.at)

    def _note_end(self, workers: WorkersSeen) -> None:
        if workers.state == "done" and self.memory.verdict is None:
            progress = self.workers.progress
            self._remember(RunEnd(done=True, reason=progress.early or f"all {progress.step} steps are trained"))

    def _wake(self) -> None:
        self.heartbeat.woke.clear()
        self._note_end(self.workers.look(self.generation))  # or it would wait for others that have ended
        self._record("woke", f"this machine was away for over {TIMING.pause_s:.0f} s; its old generation is void")
        self.heartbeat.forget()
        self._drop_generation()
        self.up_since = self.now()

    # -- acting --------------------------------------------------------------------------------------------------

    def _act(self, action: membership.Action) -> None:
        if isinstance(action, membership.Idle):
            if self.status.condition == "fit":
                self.generation = None
                (self.workers.prepare if isinstance(action, membership.Prepare) else self.workers.hold)()
            else:
                self._drop_generation()
            self.reason = action.reason
            if action.reason != self.idle.reason:
                self.idle = action
                answering = {*self.status.reachable, self.cluster.node}
                silent = [name for name in self.cluster.order if name not in answering]
                self._record("waiting", action.reason, silent, too_few=action.too_few)
        elif isinstance(action, membership.Follow):
            new = action.generation
            self._adopt(new, f"{', '.join(new.members)} by {new.host}")
        elif isinstance(action, membership.Propose):
            self._propose(action)

    def _propose(self, action: membership.Propose) -> None:
        if action.kind in ("failed", "stalled"):
            self.health.failures.next_generation(self.workers.progress.best_step)
            self._record(action.kind, action.reason, action.nodes)
        port = self.workers.free_port(action.number)
        new = Generation(number=action.number, host=self.cluster.node, members=action.members, port=port)
        self._adopt(new, f"{', '.join(new.members)}: {action.reason}", action)

    def _adopt(self, new: Generation, reason: str, ours: membership.Propose | None = None) -> None:
        if old := self.last_generation:
            if gone := [name for name in old.members if name not in new.members]:
                self._note_lost(gone, new.host, ours.lost if ours else {})
            if come := [name for name in new.members if name not in old.members]:
                why = ours.reason if ours and ours.kind == "joined" else f"{', '.join(come)} added by {new.host}"
                self._record("joined", why, come)
        self.generation = self.last_generation = new
        self.newcomers.note(new.members, self.now())
        self.reason, self.idle = reason, membership.Idle("")
        self.health.failures.since = 0.0
        self.memory.number, self.memory.begun = new.number, True
        self.memory.save()
        self._record("plan", reason, new.members)

    def _note_lost(self, gone: Sequence[str], host: str, lost: Mapping[str, Lost]) -> None:
        """Records who is lost. The host knows why; another node knows it only of those that say they step aside."""
        lost = lost or membership.stepped_aside({name: peer.status for name, peer in self.heartbeat.snapshot().items()})
        losses = {name: lost[name] for name in gone if name in lost}
        reason = membership.lost_words(losses) if len(losses) == len(gone) else f"{', '.join(gone)} dropped by {host}"
        how = {name: loss.how for name, loss in losses.items()}
        why = {name: loss.why for name, loss in losses.items()}
        self._record("lost", reason, gone, how=how, why=why)

    def _drop_generation(self) -> None:
        self.generation = None
        self.workers.stop()

    def _publish(self, status: NodeStatus) -> None:
        if status == self.status:
            return
        old, self.status = self.status, status
        if replace(old, step=status.step) != status:
            self.heartbeat.send_now()

    def _remember(self, verdict: RunEnd) -> None:
        self.memory.verdict = verdict
        self.memory.save()
        self.keeper.ended(verdict)

    # -- leaving -------------------------------------------------------------------------------------------------

    def _on_signal(self, number: int, _: Any) -> None:
        self.stop_signal = number  # seen within a tick; an Event must not be set from a handler

    def _leave(self, why: str) -> int:
        """Inform the others, so that they need not find out; save; go."""
        self._drop_generation()
        self._publish(replace(self._status(self._observe()), condition="leaving"))
        self._record("leaving", why, [self.cluster.node])
        self.workers.finish(self._show)
        self.heartbeat.send_now()
        self.outside.clock.sleep(TIMING.leave_s)
        self._show(force=True)
        return 128 + self.stop_signal

    def _fail(self, error: Exception) -> int:
        with contextlib.suppress(Exception):
            self._drop_generation()
            self._publish(replace(self.status, condition="leaving"))
            self._record("failed", f"its agent: {error}", [self.cluster.node], whose="own")
            self.workers.finish(self._show)
        return 128 + self.stop_signal if self.stop_signal else FAILED_ITSELF

    def _end(self, verdict: RunEnd) -> int:
        """Ends the run here, for whatever reason: all peers learn of it before this agent is gone."""
        self._remember(verdict)
        self.reason = verdict.reason
        group, progress = self.workers.of(self.generation), self.workers.progress
        if verdict.done and group:
            deadline = self.now() + TIMING.finish_s  # another node finished a moment before this one
            while group.state == "running" and self.now() < deadline:
                progress.read()
                self._show()
                self.outside.clock.sleep(0.1)
        else:
            self._drop_generation()
        progress.read()
        has_result = progress.done or not self.memory.begun
        note = "" if not verdict.done or has_result else "; this node has no result of its own, the others have"
        self._publish(self._status(self._observe()))
        self._record("ended", verdict.reason + note, done=verdict.done)
        self.workers.finish(self._show)
        self.notifier.end(verdict, progress)
        self._farewell()
        meant = self.stop_signal == 0 and (verdict.done or progress.step > 0)
        if meant and self.keeper.is_last() and (then := self.stepping.after_the_run()):
            self.reason = f"{self.reason}; {then} in a minute"
        self._show(force=True)
        return 0 if verdict.done else 1

    def _knows(self, peer: NodeStatus) -> bool:
        return peer.verdict is not None and {*self.memory.ledger.sent} <= {*peer.ledger.sent}

    def _farewell(self) -> None:
        least, until = self.now() + TIMING.farewell_least_s, self.now() + TIMING.farewell_s
        while self.now() < until and not self.stop_signal:
            seen = self._observe()
            if self.notifier.look(self.status, seen.statuses):  # somebody still has to send the message of the end
                until = self.now() + TIMING.farewell_s
            elif self.now() > least and all(self._knows(peer) for peer in seen.statuses.values()):
                break
            self._publish(self._status(seen))
            self.outside.clock.sleep(0.1)

    # -- showing -------------------------------------------------------------------------------------------------

    def _record(self, kind: str, reason: str, nodes: Sequence[str] = (), **facts: Any) -> None:
        host, step = self.generation.host if self.generation else "", self.workers.progress.step
        self.log.write(kind, number=self.memory.number, step=step, host=host, nodes=nodes, reason=reason, **facts)

    def _show(self, *, force: bool = False) -> None:
        at = self.now()
        showing = (self._state(), self.reason, self.generation)
        if showing == self.shown and at < self.file.next_at and not force:
            return
        self.shown = showing
        host, members = (self.generation.host, self.generation.members) if self.generation else ("", ())
        facts = {"run": self.cluster.run, "node": self.cluster.node, "pid": os.getpid(), "reason": self.reason}
        facts |= {"epoch": self.memory.number, "members": members, "host": host, "step": self.workers.progress.step}
        facts |= {"saves_s": round(self.workers.saves_s, 1)}
        facts |= {"aside": asdict(self.stepping.now)} if self.stepping.now else {}
        peers = {name: peer.facts(at) for name, peer in self.heartbeat.snapshot().items()}
        self.file.write(self._state(), facts | {"peers": peers, "gpus": self.gpus.now})

    def _state(self) -> str:
        if self.memory.verdict:
            return "done" if self.memory.verdict.done else "failed"
        if self.status.condition != "fit":
            return self.status.condition
        if self.generation is None:
            return "waiting"
        return "training" if self.workers.progress.stepped and self.workers.of(self.generation) else "starting"
