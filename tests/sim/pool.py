"""Workers of a run in pieces: train/engine/pool_run.py itself, with a played recipe over a played store and disk."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.sim.cluster import SETTINGS
from tests.sim.played import Life, Play, PlayedEvent, PlayedWorkClock, Task, task
from tests.sim.pool_store import AGAIN_S, LeftGroupError, PlayedGroup, PlayedStore
from tests.sim.trainer import Process, Trained, Training
from train.engine.pool_run import Outside, PoolRun
from train.failures import classify_failure
from train.pool.piece_thread import Desk, Hands
from train.pool.pieces import Done, Known, Piece
from train.pool.record import Record
from train.runlog import paths
from train.runlog.events import EventLog

if TYPE_CHECKING:
    from tests.sim.pool_truth import PoolTruth

MOST_GROUPS = 20


class PlayedRecipe:
    """Each piece has its cost, and what comes of it is a token that no other execution has."""

    def __init__(self, worker: PoolWorker) -> None:
        self.worker, self.pool = worker, worker.training

    @property
    def total(self) -> int:
        return len(self.pool.costs)

    def load(self, desk: Desk) -> None:
        task().wait(self.worker.node.loads_s)
        self.worker.is_loaded = True
        if self.worker.node.fails:
            raise RuntimeError(self.worker.node.fails.pop())

    def next(self, known: Known) -> Piece | None:
        number = next((number for number in range(self.total) if not known.has(number)), None)
        return None if number is None else Piece(number, {"cost": self.pool.costs[number]})

    def is_over(self, known: Known) -> bool:
        return len(known.done) == self.total

    def work(self, piece: Piece, desk: Desk) -> dict[str, Any]:
        worker = self.worker
        token = self.pool.truth.begins_piece(worker, piece)
        part_s = piece.what["cost"] * worker.node.step_s / 3
        for i in range(3):
            if desk.is_stopped.wait(part_s):
                task().wait(0.05 * worker.play.dice.random())
                return {"token": f"{token}, stopped in its midst"}
            if worker.is_hung:
                task().wait(None)
            desk.note({"of": token, "part": i})
        self.pool.truth.ends_piece(worker, piece)
        return {"token": token}

    def words(self, done: Done) -> str:
        return str(done.result["token"])

    def finish(self, known: Known) -> Path:
        task().wait(0.02 + 0.2 * self.worker.play.dice.random())
        self.pool.truth.finishes(self.worker)
        return Path("answers")

    def close(self) -> None:
        pass


class PieceDisk:
    """A machine's disk, as record.py has it: it outlives the power, which may take half of the last line."""

    def __init__(self, worker: PoolWorker) -> None:
        self.worker = worker

    def read(self, file: Path) -> str:
        data = self.worker.node.machine.files.get(file, b"")
        return data[: data.rfind(b"\n") + 1].decode()

    def append(self, file: Path, line: str) -> None:
        machine = self.worker.node.machine
        before = self.read(file).encode()
        dice = machine.play.dice
        machine.files[file] = before + line[: dice.randrange(len(line))].encode()
        task().wait(0.002 + machine.disk_takes_s * dice.random())
        if machine.disk_is_full:
            machine.files[file] = before
            raise OSError(28, "No space left on device", str(file))
        machine.files[file] = before + line.encode()
        self.worker.training.truth.recorded(machine.name, Done.of(json.loads(line)))


class PieceLog(EventLog):
    """What it tells its agent, and who watches."""

    def __init__(self, worker: PoolWorker) -> None:
        super().__init__(None)
        self.worker = worker

    def write(self, kind: str, **facts: Any) -> None:
        super().write(kind, **facts)
        worker = self.worker
        if kind == "start":
            assert worker.store
            worker.training.truth.meets(worker, worker.store)
        if kind == "note":
            worker.training.truth.noted(worker, facts["fact"])
        worker.node.tell(event=kind, **facts)

    def lives(self) -> None:
        machine, log = self.worker.node.machine, self.worker.node.log
        machine.changed[log] = machine.changed.get(log, 0) + 1


class PoolWorker(Process):
    """The run in it asks of it what Orders has of its agent (train/parallel/worker_orders.py)."""

    training: Pool

    def __init__(self, training: Pool, node: Trained, env: Mapping[str, str]) -> None:
        super().__init__(training, node, Life(node.machine))
        self.play, self.name = training.play, node.machine.name
        self.taken = self.groups = 0
        self.arrived = PlayedEvent(self.play)
        self.said: tuple[int, Mapping[str, str]] = (0, {})
        self.store: PlayedStore | None = None
        self.env = dict(env)
        outside: Any = Outside(
            env=self.env, clock=PlayedWorkClock(self.life), disk=PieceDisk(self), log=PieceLog(self),
            orders=self if node.stays else None, join=self._join, report=self._reports, device="cpu", precision="fp32",
        )  # type: ignore[arg-type]  # fmt: skip
        self.run = PoolRun(SETTINGS, PlayedRecipe(self), outside)
        Task(self.life, self._main, ())

    @property
    def number(self) -> int:
        return int(self.env["MOTLEY_GENERATION"])

    @property
    def record(self) -> Record:
        return self.run.record

    @property
    def hands(self) -> Hands:
        return self.run.hands

    # -- what it does --------------------------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            self.run.run()
            self.ends(0)
        except Exception as error:
            self._fails(error)

    def _join(self, timeout_s: float, _: object) -> PlayedGroup:
        stores, until = self.training.stores, self.play.time + timeout_s
        board: Any = self.run.board
        rank, size = int(self.env["RANK"]), int(self.env["WORLD_SIZE"])
        where = f"{self.env['MASTER_ADDR']}:{self.env['MASTER_PORT']}/{self.number}"
        if rank == 0:
            stores[where] = PlayedStore(self, size)
        group = None
        while not board.is_closed and self.play.time < until:
            store = stores.get(where)
            if store and group is None and (store.host is self or self._reaches(store.host)):
                group = PlayedGroup(self, store, rank, size, self.name)
                store.members[rank] = self
                self.store = store
            if group and group.all_are_there():
                return group
            task().wait(AGAIN_S * self.play.dice.random())
        raise RuntimeError("tcpstore: the others did not come")

    def _reaches(self, host: PoolWorker) -> bool:
        own, other = self.node.machine, host.node.machine
        both = self.play.reaches(own, other) and self.play.reaches(other, own)
        return both and not (host.life.is_held or host.life.is_over)

    def require_group(self) -> None:
        if self.arrived.is_set():
            raise LeftGroupError("its agent has another group for it")

    # -- its agent's orders --------------------------------------------------------------------------------------------

    def tell_agent(self, *, stays: bool) -> None:
        self.answer = str(self.taken).encode() if stays and self.groups < MOST_GROUPS else b""

    def obey(self) -> None:
        while True:
            self.arrived.wait()
            self.arrived.clear()
            self.taken, env = self.said
            self.groups += 1
            self.answer = str(self.taken).encode()
            if env:
                self.env.update(env)
                return

    # -- what befalls it -----------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Of its own work nothing is to be saved; whether it does some."""
        return 0 if self.is_loaded and self.hands.running else -1

    @property
    def can_work(self) -> bool:
        return self.code is None and not self.life.is_held

    @property  # type: ignore[override]
    def is_halted(self) -> bool:
        return self.life.frozen_since is not None

    @is_halted.setter
    def is_halted(self, halts: bool) -> None:
        self.life.frozen_since = self.play.time if halts else None
        if not halts and not self.life.is_held:
            self.life.wake()

    def _reports(self, error: Exception, word: int) -> None:
        if word >= self.word:  # else it is of a group before this one
            self.cause = json.dumps({"kind": classify_failure(error), "message": str(error)}).encode()

    def fails(self, _: str, message: str) -> None:
        self._fails(RuntimeError(message))

    def _fails(self, error: Exception) -> None:
        if self.code is None and not self.leaves:
            self.answer, self.word = b"", 0
            self._reports(error, self.taken)
            self.ends(1)

    def ends(self, code: int) -> None:
        if self.code is None:
            if self.node.cannot_end:
                self.is_hung = True  # its threads are gone, and one waits in the kernel
            else:
                self.code = code
            self.life.is_over = True
            self.play.after(0.0, self.life.end)

    # -- what its agent asks -------------------------------------------------------------------------------------------

    def reported(self) -> bytes:
        return self.cause

    def tell(self, number: int, env: Mapping[str, str]) -> None:
        self.cause, self.word = b"", number
        self.play.after(0.02 + 0.05 * self.play.dice.random(), self._hears, number, dict(env))

    def _hears(self, number: int, env: Mapping[str, str]) -> None:
        if self.life.is_over or number != self.word:
            return
        if self.life.is_held:
            self.play.after(0.2, self._hears, number, env)
            return
        self.said = number, env
        self.arrived.set()

    def send(self, number: signal.Signals) -> None:
        if self.code is not None:
            return
        if number == signal.SIGKILL:
            self.ends(-signal.SIGKILL)
        elif not self.leaves:
            self.asked_at = self.play.time
            self._leaves()

    def _leaves(self) -> None:
        if self.life.is_held:
            self.play.after(0.2, self._leaves)
        elif not self.life.is_over:
            self.leaves = True
            self.run.leave("SIGTERM")
            self.play.after(0.02 + 0.4 * self.play.dice.random() ** 2, self._left)

    def _left(self) -> None:
        if self.life.is_held:
            self.play.after(0.2, self._left)
        elif not self.life.is_over:
            self.ends(143)


class Pool(Training):
    """All groups of a story, and the work that they share."""

    truth: PoolTruth
    nodes: dict[str, Trained]

    def __init__(self, play: Play, truth: PoolTruth, costs: tuple[float, ...]) -> None:
        super().__init__(play, truth)
        self.costs = costs
        self.stores: dict[str, PlayedStore] = {}
        self.file = SETTINGS.checkpoint_folder() / paths.PIECES

    def worker(self, node: Trained, life: Life, env: Mapping[str, str]) -> Any:
        return PoolWorker(self, node, env)

    def living(self, name: str) -> list[PoolWorker]:
        return [worker for worker in self.nodes[name].workers if not worker.life.is_over]  # type: ignore[misc]
