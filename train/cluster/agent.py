"""`python -m train agent`: keeps a run going on this node, together with the agents of the other nodes.

    python -m train agent --cluster config/cluster_config.yaml --config config/training_config.yaml

The agents hear each other (presence.py), each decides by the same rules (membership.py), and each runs this node's
workers (workers.py) as long as they belong to the plan. Exit codes: 0 the run is done, 1 it failed, 2 bad input,
143 stopped by a signal.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

from train.cluster import workers
from train.cluster.agent_files import Diary, Memory, Progress, write_now
from train.cluster.fitness import Fitness
from train.cluster.forkserver import ForkServer
from train.cluster.gpu_log import GpuReadings
from train.cluster.heartbeat import MUTE_S, Presence, now
from train.cluster.membership import End, Follow, Keep, Plan, Propose, Rest, Said, Verdict, View, decide
from train.engine.staging import Stage
from train.errors import BadInput
from train.plan.cluster_config import ClusterConfig, read_cluster
from train.plan.config import RunConfig, load_config, read_yaml
from train.safe_stdio import may_get_lost

TICK_S = 0.25
PAUSE_S = MUTE_S + 1
"""Away for longer than the others' patience: they go on without this node, so its plan is void."""
FINISH_S = 30.0
LEAVE_S = 4.5
KEEP_S = 40.0
"""Together less than the unit's TimeoutStopSec."""
FAREWELL_S = 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster", type=Path, required=True, help="cluster_config.yaml: who trains, and where")
    parser.add_argument("--wait-s", type=float, default=60.0, help="how long the first plan waits for missing nodes")
    parser.add_argument("--program", default="-m train", help=argparse.SUPPRESS)  # tests train with a broken one


def main(args: argparse.Namespace) -> int:
    may_get_lost()
    cluster = read_cluster(args.cluster)
    if args.config is None:
        raise BadInput("the settings of the run are missing", fix="add: --config config/training_config.yaml")
    values = read_yaml(args.config, "config file")
    settings = load_config(values | {"run": cluster.run})
    return Agent(cluster, settings, args).run()


class Agent:
    def __init__(self, cluster: ClusterConfig, settings: RunConfig, args: argparse.Namespace) -> None:
        self.cluster, self.settings, self.args = cluster, settings, args
        self.folder = settings.log_folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.memory = Memory.load(self.folder / "epoch.json", cluster.token)
        self.diary = Diary(self.folder, cluster.node)
        eval_steps = settings.eval_rows / settings.rows_per_step
        self.progress = Progress(self.folder / "events.jsonl", eval_steps)
        self.stage = Stage(settings.checkpoint_folder(), cluster.node)
        self.gpus = GpuReadings(self.folder / "gpu.jsonl", cluster.node)

        self.plan: Plan | None = None
        self.last_plan: Plan | None = None
        self.group: workers.Group | None = None
        self.reason = "starting"
        self.condition, self.cause = "fit", ""
        self.fitness = Fitness()
        self.failures = 0
        self.failure_at = 0.0
        self.failure_step = -1
        self.host_step = -1
        self.stop_signal = 0
        self.up = self.state_since = now()
        self.rest_told = ""
        self.shown: tuple[Any, ...] = ()
        self.next_file = 0.0
        self.members_since: dict[str, float] = {}
        self.hold: dict[str, float] = {}
        self.said = Said(name=cluster.node, epoch=self.memory.epoch, begun=self.memory.begun)
        self.presence = Presence(cluster, lambda: self.said)
        self.warm: ForkServer | None = None
        self.woke = threading.Event()

    # -- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        try:
            self.presence.start()
        except OSError as error:
            where = f"{self.cluster.of(self.cluster.node).address} port {self.cluster.presence_port}"
            raise BadInput(
                f"the agent cannot listen: {error.strerror}", where, "see: systemctl status motley-run"
            ) from None
        threading.Thread(target=self._notice_pauses, daemon=True).start()
        self.warm = None if self.memory.verdict else ForkServer()
        self._tell("up", f"{self.cluster.run} on {', '.join(self.cluster.order)}", list(self.cluster.order))
        if self.settings.resume == "never" and not self.memory.begun:
            self._set_old_run_aside()
        while True:
            self._look()
            if self.stop_signal:
                return self._leave()
            action = decide(self._view())
            if isinstance(action, End):
                return self._end(action.verdict)
            self._act(action)
            self._show()
            if self.presence.news.wait(TICK_S):
                time.sleep(0.02)  # a burst of news is one change
                self.presence.news.clear()

    def _look(self) -> None:
        """What happened to the workers and to this machine since the last round."""
        if self.woke.is_set():
            self.woke.clear()
            self._tell("woke", f"this machine was away for over {PAUSE_S:.0f} s; its old plan is void", [])
            self.presence.forget()
            self._drop_plan()
            self.up = now()
        self.progress.read()
        if self.group and (self.group.kill_at is not None or self.group.plan != self.plan):
            self.group.stop()
            if self.group.poll():
                self.group = None
            self._note_stuck(self.group.unkillable if self.group else [])
        elif self.group:
            self.group.save_s = self.progress.save_s
            self._look_at_group(self.group)
        if self.group is None and self.stage.is_kept() and self.plan is not None:
            self._start_group(self.plan)

    def _look_at_group(self, group: workers.Group) -> None:
        group.finished = self.progress.done
        if self.progress.best_step > max(self.failure_step, self.host_step):
            self._made_progress()
        if group.failure is None and (failure := group.find_failure()):
            self._failed(failure)

    def _made_progress(self) -> None:
        self.failures = 0
        self.fitness.trained()

    def _note_stuck(self, pids: list[int]) -> None:
        """What cannot be ended holds the GPU: nothing can start here, and the others must not wait for it."""
        was, self.fitness.stuck = self.fitness.stuck, ""
        if pids:
            who = f"process {pids[0]}" if len(pids) == 1 else f"processes {', '.join(map(str, pids))}"
            self.fitness.stuck = f"{who} cannot be ended (it waits in the kernel; most often its GPU is gone: reboot)"
            self.cause = self.fitness.stuck
        if pids and not was:
            self._tell("unfit", self.fitness.stuck, [self.cluster.node])

    def _failed(self, failure: workers.Failure) -> None:
        first, *rest = failure.message.removeprefix(f"{self.cluster.node}: ").strip().splitlines() or ["no message"]
        self.cause = first if failure.kind != "peer" else f"lost contact with another process ({first[:160]})"
        self.failure_step = max(self.failure_step, self.progress.best_step)
        if failure.kind in ("own", "peer", "port"):
            self._tell("failed", f"{failure.kind}: {self.cause}", [self.cluster.node])
        peers = self.presence.alive().values()
        started = self.progress.step > 0 or any(peer.said and peer.said.step > 0 for peer in peers)
        if failure.kind == "check" or (failure.kind in ("input", "odd") and not started):
            self._decide_end(Verdict(done=False, reason=" ".join([f"{self.cluster.node}: {first}", *rest])))
        elif failure.kind in ("own", "input", "odd"):
            now_ = self.fitness.failed(self.cause, now(), own=failure.kind == "own", run_has_trained=started)
            if now_ != "fit":
                again = f"; tried again in {(self.fitness.rests_until - now()) / 60:.0f} min" * (now_ == "resting")
                self.reason = self.cause
                self._tell("unfit", f"its workers cannot run here: {self.cause}{again}", [self.cluster.node])

    def _decide_end(self, verdict: Verdict) -> None:
        self.memory.verdict = verdict
        self.memory.save()

    # -- deciding ------------------------------------------------------------------------------------------------

    def _view(self) -> View:
        alive, at = self.presence.alive(), now()
        if self.condition != "leaving":
            self._note_condition(self.fitness.condition(at))
        group_state = "none"
        if self.plan and self.group and self.group.plan == self.plan and self.group.kill_at is None:
            group_state = self.group.state
            if group_state == "done" and self.memory.verdict is None:
                self._decide_end(Verdict(done=True, reason=f"all {self.progress.step} steps are trained"))
            if group_state == "running":
                self.cause = "a worker is stopped" if self.group.halted() else ""
        self.said = Said(
            name=self.cluster.node,
            epoch=self.memory.epoch,
            plan=self.plan,
            hears=tuple(name for name in self.cluster.order if name in alive),
            condition=self.condition,
            cause=self.cause,
            group=group_state,
            loading=self._loads(group_state),
            step=self.progress.step,
            begun=self.memory.begun,
            verdict=self.memory.verdict,
        )
        heard = {name: peer.said for name, peer in alive.items() if peer.said}
        failed = group_state == "failed" or any(s.plan == self.plan and s.group == "failed" for s in heard.values())
        if self.plan and failed:
            self.failure_at = self.failure_at or at
        quiet = {key: value for key, value in vars(self.said).items() if key != "step"}
        shown = tuple(quiet.values())
        if shown != self.shown:
            self.shown = shown
            self.presence.tell()
        return View(
            order=self.cluster.order,
            me=self.said,
            heard=heard,
            age_s={name: at - peer.at for name, peer in alive.items()},
            welcome=self._welcome(alive, at),
            up_s=at - self.up,
            wait_all_s=self.args.wait_s,
            failures=self.failures,
            failed_s=at - self.failure_at if self.failure_at else 0.0,
            idle_s=self.progress.idle_s(at, loading=any(words.loading for words in (self.said, *heard.values()))),
            limit_s=self.progress.limit_s,
        )

    def _loads(self, group_state: str) -> bool:
        if self.group is None or group_state != "running" or self.progress.stepped:
            return False
        return self.group.work.seen(self.group.living, now())

    def _note_condition(self, condition: str) -> None:
        if (self.condition, condition) == ("resting", "fit"):
            self.cause = ""
            self._tell("waiting", "its workers are tried again", [])
        self.condition = condition

    def _welcome(self, alive: dict[str, Any], at: float) -> list[str]:
        """A node that was lost soon after it had joined must be heard for longer each time before it may again."""
        members = self.plan.members if self.plan else ()
        for name in [name for name in self.members_since if name not in members]:
            stayed_s = at - self.members_since.pop(name)
            self.hold[name] = min(60.0, 2 * self.hold.get(name, 2.0)) if stayed_s < 20 else 0.0
        for name in members:
            self.members_since.setdefault(name, at)
        return [name for name, peer in alive.items() if at - peer.since >= self.hold.get(name, 0.0)]

    def _act(self, action: Keep | Rest | Follow | Propose) -> None:
        if isinstance(action, Rest):
            self._drop_plan()
            self.reason = action.reason
            if action.reason != self.rest_told:
                self.rest_told = action.reason
                missing = [name for name in self.cluster.order if name not in (*self.said.hears, self.cluster.node)]
                self._tell("waiting", action.reason, missing)
        elif isinstance(action, Follow):
            self._note_change(action.plan)
            self._adopt(action.plan, f"{', '.join(action.plan.members)} by {action.plan.host}")
        elif isinstance(action, Propose):
            self._propose(action)

    def _propose(self, action: Propose) -> None:
        if self.plan and action.kind in ("failed", "stalled"):
            self.failures = self.failures + 1 if self.progress.best_step <= self.host_step else 1
            self.host_step = self.progress.best_step
        if action.kind in ("failed", "stalled"):
            self._tell(action.kind, action.reason, list(action.nodes))
        plan = Plan(
            epoch=action.epoch,
            host=self.cluster.node,
            members=action.members,
            port=free_port(self.cluster, action.epoch),
        )
        self._note_change(plan, action.reason if action.kind in ("lost", "joined") else "")
        self._adopt(plan, f"{', '.join(plan.members)}: {action.reason}")

    def _note_change(self, new: Plan, reason: str = "") -> None:
        """Who is in and who is out, against the plan that this node followed last."""
        old, self.last_plan = self.last_plan, new
        if old is None:
            return
        if gone := [name for name in old.members if name not in new.members]:
            self._tell("lost", reason or f"{', '.join(gone)} left out by {new.host}", gone)
        if come := [name for name in new.members if name not in old.members]:
            self._tell("joined", reason or f"{', '.join(come)} taken in by {new.host}", come)

    def _adopt(self, plan: Plan, reason: str) -> None:
        self.plan, self.reason, self.rest_told = plan, reason, ""
        self.failure_at = 0.0
        self.memory.epoch, self.memory.begun = plan.epoch, True
        self.memory.save()
        self._tell("plan", reason, list(plan.members))
        self._look()

    def _drop_plan(self) -> None:
        self.plan = None
        if self.group:
            self.group.stop()

    def _start_group(self, plan: Plan) -> None:
        resume = "auto" if self.settings.resume == "never" else self.settings.resume
        words = workers.run_words(self.cluster, self.args.config, self.settings.home_folder, resume, self.args.program)
        self.progress.begin()
        self.group = workers.start(self.cluster, plan, words, self.warm, stage=self.stage.open())

    def _set_old_run_aside(self) -> None:
        """`resume: never` counts once for each launch and node: a later plan goes on from what was trained since."""
        old = self.settings.checkpoint_folder()
        if old.is_dir():
            old.rename(old.with_name(f"{old.name}.before-{time.strftime('%Y%m%d-%H%M%S')}"))
        self.memory.begun = False
        self.memory.save()

    # -- leaving -------------------------------------------------------------------------------------------------

    def _on_signal(self, number: int, _: Any) -> None:
        self.stop_signal = number  # seen within a tick; an Event must not be set from a handler

    def _leave(self) -> int:
        """Tell the others, so that they need not find out; save; go."""
        self.condition = "leaving"
        self._drop_plan()
        self._view()
        self._tell("leaving", f"stopped by {signal.Signals(self.stop_signal).name}", [self.cluster.node])
        self._wait_for_group()
        self.presence.tell()
        time.sleep(0.3)
        self._show(force=True)
        return 128 + self.stop_signal

    def _end(self, verdict: Verdict) -> int:
        """Over, for whatever reason: all hear of it before this agent is gone."""
        self._decide_end(verdict)
        self.reason = verdict.reason
        if verdict.done and self.group and self.group.plan == self.plan:
            deadline = now() + FINISH_S  # another node finished a moment before this one
            while self.group.living and now() < deadline:
                self.progress.read()
                self._show()
                time.sleep(0.1)
        else:
            self._drop_plan()
        self.progress.read()
        had_part = self.progress.done or not self.memory.begun
        note = "" if not verdict.done or had_part else "; this node has no result of its own, the others have"
        self._view()
        self._tell("ended", ("done: " if verdict.done else "failed: ") + verdict.reason + note, [])
        self._wait_for_group()
        deadline = now() + FAREWELL_S
        while now() < deadline:
            peers = self.presence.alive().values()
            if all(peer.said and peer.said.verdict for peer in peers) and now() > deadline - FAREWELL_S + 1.0:
                break
            self._view()
            time.sleep(0.1)
        self._show(force=True)
        return 0 if verdict.done else 1

    def _wait_for_group(self) -> None:
        """Until its workers are gone, and what they have saved is on the disk; systemd waits for this too."""
        deadline = now() + LEAVE_S + (0 if self.group and self.group.staged else self.progress.save_s)
        while self.group and now() < deadline:
            self.group.stop()
            if self.group.poll():
                self.group = None
            time.sleep(0.05)
        deadline = now() + KEEP_S
        while not self.stage.is_kept() and now() < deadline:
            self._show()  # who stops a run waits for an agent that still says how it is
            time.sleep(0.05)
        if self.stage.is_kept():
            self.stage.close()

    # -- telling -------------------------------------------------------------------------------------------------

    def _tell(self, kind: str, reason: str, nodes: list[str]) -> None:
        host = self.plan.host if self.plan else ""
        self.diary.write(kind, epoch=self.memory.epoch, step=self.progress.step, host=host, nodes=nodes, reason=reason)

    def _show(self, *, force: bool = False) -> None:
        at = now()
        if at < self.next_file and not force:
            return
        self.next_file = at + 1.0
        peers = {
            name: {
                "answers": peer.said is not None and not peer.lost(at),
                "silent_s": round(at - peer.at, 1) if peer.at else None,
                "how": peer.how,
                "condition": peer.said.condition if peer.said else "",
                "cause": peer.said.cause if peer.said else "",
                "step": peer.said.step if peer.said else 0,
            }
            for name, peer in self.presence.look().items()
        }
        state = self._state()
        facts = {
            "run": self.cluster.run,
            "node": self.cluster.node,
            "pid": os.getpid(),
            "time": round(time.time(), 3),
            "state": state,
            "epoch": self.memory.epoch,
            "members": list(self.plan.members) if self.plan else [],
            "host": self.plan.host if self.plan else "",
            "step": self.progress.step,
            "since": round(time.time() - (at - self._since(state)), 3),
            "reason": self.reason,
            "peers": peers,
            "gpus": self.gpus.now,
        }
        write_now(self.folder / "agent.json", facts)

    def _state(self) -> str:
        if self.memory.verdict:
            return "done" if self.memory.verdict.done else "failed"
        if self.condition != "fit":
            return self.condition
        if self.plan is None:
            return "waiting"
        return "training" if self.progress.stepped and self.group and self.group.plan == self.plan else "starting"

    def _since(self, state: str) -> float:
        if state != getattr(self, "_last_state", ""):
            self._last_state, self.state_since = state, now()
        return self.state_since

    def _notice_pauses(self) -> None:
        """A thread that only looks at the clock: nothing but a sleeping, frozen or starved machine makes it late."""
        last = now()
        while True:
            time.sleep(0.5)
            if now() - last > PAUSE_S:
                self.woke.set()
                self.presence.news.set()
            last = now()


def free_port(cluster: ClusterConfig, epoch: int) -> int:
    """Another port for each plan, so that nothing left of an older one can answer; taken ones are passed over."""
    first, last = cluster.group_ports
    count = last - first + 1
    for i in range(count):
        port = first + (epoch + i) % count
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
