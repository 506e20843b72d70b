"""Played workers of a run in pieces: real lists, records and hands (train/pool) over a played store and played disks.

A worker does what train/engine/pool_run.py does, thread for thread: one shares the list of its group, one does the
pieces, and the main one obeys its agent.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.sim.played import Life, Play, PlayedEvent, Task, task
from tests.sim.pool_store import AGAIN_S, LeftGroupError, PlayedGroup, PlayedLock, PlayedStore
from tests.sim.trainer import Trained, Training
from train.failures import classify_failure
from train.pool import piece_thread as real_hands
from train.pool.piece_thread import Desk, Hands
from train.pool.pieces import Done, Known, Piece, Taken
from train.pool.record import Record
from train.pool.shared_list import LOOK_S, Board, Watcher

if TYPE_CHECKING:
    from tests.sim.pool_truth import PoolTruth

CONNECTS_S = 300.0
"""timeout_s of a run."""
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
        return Path("answers")

    def close(self) -> None:
        pass


class PlayedHands(Hands):
    """The real ones, in a played thread."""

    def __init__(self, worker: PoolWorker) -> None:  # what the real ones begin with
        self.recipe, self.lock = worker.recipe, real_hands.threading.Lock()
        stopped: Any = PlayedEvent(worker.play)
        self.desk = Desk(config=None, node=worker.name, device="cpu", precision="", known=worker.known,  # type: ignore[arg-type]
                         doing=lambda _: None, is_stopped=stopped, now=lambda: worker.play.time)  # fmt: skip
        self.running = self.error = self.result = None
        self.is_loaded = self.has_begun = self.is_dropped = self.leaves = False
        self.begun_at = 0.0
        self.begins, self.news = PlayedEvent(worker.play), PlayedEvent(worker.play)  # type: ignore[assignment]
        Task(worker.life, self._work, ())


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


@dataclass(eq=False)
class Sharing:
    """The thread that takes part in the list of one group."""

    board: Board
    is_over: PlayedEvent
    error: Exception | None = None


class PoolWorker:
    """A process. Its agent asks of it what train/cluster/processes.py has; it does what engine/pool_run.py does."""

    def __init__(self, training: Pool, node: Trained, env: Mapping[str, str]) -> None:
        self.training, self.node, self.play = training, node, training.play
        self.name, self.pid = node.machine.name, training.next_pid()
        self.life = Life(node.machine)
        self.code: int | None = None
        self.cause = self.answer = b""
        self.word = self.taken = self.groups = 0
        self.is_loaded = self.is_hung = self.leaves = False
        self.asked_at = 0.0
        self.arrived = PlayedEvent(self.play)
        self.said: tuple[int, Mapping[str, str]] = (0, {})
        self.board: Board | None = None
        self.store: PlayedStore | None = None
        self._takes(env)
        Task(self.life, self._main, ())

    def _takes(self, env: Mapping[str, str]) -> None:
        self.rank, self.size = int(env["RANK"]), int(env["WORLD_SIZE"])
        self.where = f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}/{env['MOTLEY_GENERATION']}"
        self.number = int(env["MOTLEY_GENERATION"])

    # -- what it does --------------------------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            self.record = Record(self.training.file, PieceDisk(self))
            self.recipe = PlayedRecipe(self)
            self.hands = PlayedHands(self)
            while not self._in_a_group():
                self.hands.require_life(self.record.done.values())
                self._obey()
            task().wait(0.02 + 0.2 * self.play.dice.random())
            self.training.truth.finishes(self)
            self.node.tell(event="done", step=len(self.record.done))
            self.ends(0)
        except Exception as error:
            self.fails(classify_failure(error), str(error))

    def known(self) -> Known:
        return self.board.known if self.board else Known(dict(self.record.done), {})

    def _in_a_group(self) -> bool:
        watcher = Watcher(done=self._tell_done, noted=self._tell_notes)
        now = lambda: self.play.time  # noqa: E731
        self.board = board = Board(self.recipe, self.record, self.hands, watcher, self.number, now)
        board.lock = PlayedLock(self.play)  # type: ignore[assignment]
        self.answer = str(self.taken).encode() if self.node.stays and self.groups < MOST_GROUPS else b""
        sharing = Sharing(board, PlayedEvent(self.play))
        Task(self.life, self._share, (sharing,))
        while not sharing.is_over.is_set():
            sharing.is_over.wait(3 * LOOK_S)
            if self.hands.error:
                raise self.hands.error
            if self.node.stays and self.arrived.is_set():
                board.close()
                return False
        if sharing.error is None:
            return True
        board.close()
        if not self.node.stays or classify_failure(sharing.error) != "peer":
            raise sharing.error
        self._reports("peer", str(sharing.error))
        return False

    def _share(self, sharing: Sharing) -> None:
        board = sharing.board
        try:
            group = self._join(board)
            group.gather(self.name)
            if board.is_closed:
                return
            self.training.truth.meets(self, group.store)
            self.node.tell(event="start", weights=0, step=len(self.record.done))
            board.run(group)
        except Exception as error:
            if not board.is_closed:
                sharing.error = error
        finally:
            sharing.is_over.set()

    def _join(self, board: Board) -> PlayedGroup:
        stores, until = self.training.stores, self.play.time + CONNECTS_S
        if self.rank == 0:
            stores[self.where] = PlayedStore(self, self.size)
        group = None
        while not board.is_closed and self.play.time < until:
            store = stores.get(self.where)
            if store and group is None and (store.host is self or self._reaches(store.host)):
                group = PlayedGroup(self, store, self.rank, self.size, self.name)
                store.members[self.rank] = self
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

    def _tell_done(self, done: Done) -> None:
        self.node.tell(event="piece", step=len(self.record.done), step_s=done.seconds)

    def _tell_notes(self, taken: Taken) -> None:
        self.training.truth.noted(self, taken)

    def _obey(self) -> None:
        while True:
            self.arrived.wait()
            self.arrived.clear()
            self.taken, env = self.said
            self.groups += 1
            self.answer = str(self.taken).encode()
            if env:
                self._takes(env)
                return

    # -- what befalls it -----------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Of its own work nothing is to be saved; whether it does some."""
        return 0 if self.is_loaded and self.hands.running else -1

    @property
    def can_work(self) -> bool:
        return self.code is None and not self.life.is_held

    @property
    def is_halted(self) -> bool:
        return self.life.frozen_since is not None

    @is_halted.setter
    def is_halted(self, halts: bool) -> None:
        self.life.frozen_since = self.play.time if halts else None
        if not halts and not self.life.is_held:
            self.life.proceed()

    def _reports(self, kind: str, message: str) -> None:
        if self.taken >= self.word:  # else it is of a group before this one
            self.cause = json.dumps({"kind": kind, "message": message}).encode()

    def fails(self, kind: str, message: str) -> None:
        if self.code is None and not self.leaves:
            self.answer, self.word = b"", 0
            self._reports(kind, message)
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

    def poll(self) -> int | None:
        return self.code

    def reported(self) -> bytes:
        return self.cause

    def can_stay(self) -> bool:
        return bool(self.answer)

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

    def has_obeyed(self, number: int) -> bool:
        return self.answer == str(number).encode()

    def is_stopped(self) -> bool:
        return self.code is None and self.is_halted

    def waits_in_kernel(self) -> bool:
        return self.node.cannot_end

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
            if self.is_loaded:
                self.hands.leave()
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
        self.file = Path("/played/pieces.jsonl")

    def worker(self, node: Trained, life: Life, env: Mapping[str, str]) -> Any:
        return PoolWorker(self, node, env)

    def living(self, name: str) -> list[PoolWorker]:
        return [worker for worker in self.nodes[name].workers if not worker.life.is_over]  # type: ignore[misc]
